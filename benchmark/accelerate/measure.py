"""A user's script with PyG's models, and the same after one changed import, `accelerate`, and
native batches.

Networks have two and three layers, and are called whole or trimmed, as scripts do. Without pyg-lib
PyG's loader cannot sample; then the scripts with the changed import are what others are compared
with. Without --graph it runs on two generated graphs with the degrees, features and classes of
ogbn-arxiv and ogbn-products, the second with a sixth of the nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmark.support.cli import BenchmarkRun, parser
from benchmark.support.harness import Players
from benchmark.support.prepare import dataset_folder
from benchmark.support.settings import ProcessSetting


@dataclass(frozen=True)
class Shape:
    """The size of a generated graph."""

    nodes: int
    degree: float
    features: int
    classes: int


SHAPES = {
    "arxiv-like": Shape(170_000, 14.0, 128, 40),
    "products-like": Shape(400_000, 50.0, 100, 47),
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
LAYERS = (2, 3)


def series(run: BenchmarkRun, setting: ProcessSetting) -> Iterator[dict[str, Any]]:
    """Yields the series of each model and depth, measured by the same processes."""
    contestants = [run.peers.contestant(*column) for column in COLUMNS]
    with Players(contestants, setting) as players:
        for layers in LAYERS:
            for model in run.models:
                print(f"{model}, {layers} layers, {setting.threads} thread(s)", flush=True)
                options = replace(run.options, model=model, fanouts=run.options.fanouts[:layers])
                found = players.series(options, run.rounds).as_dict()
                yield {**found, "model": model, "layers": layers}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures each graph, then stores its JSON file."""
    options = parser(__doc__ or "", batches=2, rounds=2, threads=(1,))
    options.set_defaults(malloc=["default"], batch_size=256)
    parsed = options.parse_args(arguments)
    if parsed.graph is None:
        folders = [dataset_folder(name, "generated", **vars(shape)) for name, shape in SHAPES.items()]
        graphs = [folder.path for folder in folders]
    else:
        graphs = [parsed.graph]
    for graph in graphs:
        parsed.graph = graph
        run = BenchmarkRun.parse(parsed)
        run.store("accelerate", {"series": [one for setting in run.settings for one in series(run, setting)]})


if __name__ == "__main__":
    main()
