"""A user's script, and the same after one changed import, `accelerate`, and native batches.

PyG's models and two modules of a user's own have two layers, and are called whole or trimmed, as
scripts do. Without pyg-lib PyG's loader cannot sample; then the scripts with the changed import are
what others are compared with. Without --graph it runs on a generated graph with the size, degrees,
features and classes of ogbn-products, and on a small real one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from benchmark.networks.basic import OWN
from benchmark.support.cli import BenchmarkRun, parser
from benchmark.support.harness import Players
from benchmark.support.prepare import dataset_folder
from benchmark.support.settings import ProcessSetting

#: The graphs: by name, what `load_dataset` takes.
GRAPHS: dict[str, dict[str, Any]] = {
    "products-like": {
        "name": "generated",
        "nodes": 2_449_029,
        "degree": 60.5,
        "features": 100,
        "classes": 47,
    },
    "amazon_photo": {"name": "amazon_photo"},
}
#: (name, side, job, minibatches per round; 0: all). PyG's layers take seconds.
COLUMNS = [
    ("unchanged", "pyg", "basic", 1),
    ("unchanged, trimmed", "pyg", "basic-trimmed", 1),
    ("import", "ported", "import", 1),
    ("import, trimmed", "ported", "import-trimmed", 1),
    ("accelerate", "ported", "accelerate", 0),
    ("accelerate, trimmed", "ported", "accelerate-trimmed", 0),
    ("model(batch)", "ported", "batch", 0),
    ("native batches", "ported", "native", 0),
]
LAYERS = 2
#: The columns that a module of one's own has not: `model(batch)` needs a model that is known.
NOT_OWN = ("model(batch)", "native batches")


def series(run: BenchmarkRun, setting: ProcessSetting) -> Iterator[dict[str, Any]]:
    """Yields the series of each model, measured by the same processes."""
    contestants = [run.peers.contestant(*column) for column in COLUMNS]
    with Players(contestants, setting) as players:
        for model in (*run.models, *OWN):
            print(f"{model}, {setting.threads} thread(s)", flush=True)
            names = [name for name, *_ in COLUMNS if not (model in OWN and name in NOT_OWN)]
            options = replace(run.options, model=model, fanouts=run.options.fanouts[:LAYERS])
            found = players.series(options, run.rounds, names=names).as_dict()
            yield {**found, "model": model, "layers": LAYERS}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures each graph, then stores its JSON file."""
    options = parser(__doc__ or "", batches=4, rounds=9, threads=(1,))
    options.set_defaults(malloc=["default"], fanouts=[15, 10])
    parsed = options.parse_args(arguments)
    if parsed.graph is None:
        graphs = [dataset_folder(name, **choice).path for name, choice in GRAPHS.items()]
    else:
        graphs = [parsed.graph]
    for graph in graphs:
        parsed.graph = graph
        run = BenchmarkRun.parse(parsed)
        run.store("accelerate", {"series": [one for setting in run.settings for one in series(run, setting)]})


if __name__ == "__main__":
    main()
