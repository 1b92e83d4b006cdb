"""A user's script, and the same after one changed import, `accelerate`, and native batches.

PyG's models have two layers, and are called whole or trimmed, as scripts do; `own_models` has
modules of a user's own. Without pyg-lib PyG's loader cannot sample; then the scripts with the
changed import are what others are compared with. Without --graph it runs on a generated graph with
the size, degrees, features and classes of ogbn-products, and on a small real one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmark.networks.recipe import TITLES
from benchmark.own_models import GRAPHS, ROWS
from benchmark.support.cli import BenchmarkRun, parser, read_json
from benchmark.support.graphs import dataset_folder
from benchmark.support.harness import Players, ProcessSetting
from benchmark.support.plots import steps_plot
from benchmark.support.tables import (
    SECONDS,
    Result,
    absences,
    figures_of,
    markdown,
    milliseconds,
    setting,
    times,
)

#: (name, side, job, minibatches per round; 0: all). PyG's layers take seconds.
COLUMNS = [
    ("unchanged", "pyg", "basic", 1),
    ("unchanged, trimmed", "pyg", "basic-trimmed", 1),
    ("import", "ours", "import", 1),
    ("import, trimmed", "ours", "import-trimmed", 1),
    ("accelerate", "ours", "accelerate", 0),
    ("accelerate, trimmed", "ours", "accelerate-trimmed", 0),
    ("model(batch)", "ours", "batch", 0),
    ("native batches", "ours", "native", 0),
]
LAYERS = 2


def series(run: BenchmarkRun, setting: ProcessSetting) -> Iterator[dict[str, Any]]:
    """Yields the series of each model, measured by the same processes."""
    contestants = [run.peers.contestant(*column) for column in COLUMNS]
    with Players(contestants, setting) as players:
        for model in run.models:
            print(f"{model}, {setting.threads} thread(s)", flush=True)
            options = replace(run.options, model=model, fanouts=run.options.fanouts[:LAYERS])
            yield {**players.series(options, run.rounds).as_dict(), "model": model, "layers": LAYERS}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures each graph, then stores its JSON file."""
    options = parser(__doc__ or "", batches=4, rounds=9, threads=(1,))
    options.set_defaults(malloc=["default"], fanouts=[15, 10])
    parsed = options.parse_args(arguments)
    if parsed.graph is None:
        graphs = [dataset_folder(name, **GRAPHS[name]).path for name in GAINS]
    else:
        graphs = [parsed.graph]
    for graph in graphs:
        parsed.graph = graph
        run = BenchmarkRun.parse(parsed)
        run.store("accelerate", {"series": [one for setting in run.settings for one in series(run, setting)]})


#: The ways to call a model, the scripts that do so, and what they are compared with.
WHOLE, TRIMMED = "unchanged", "unchanged, trimmed"
NAMES = tuple(name for name, *_ in COLUMNS)
#: A script and the one before the step, called alike.
STEPS = (
    ("import", WHOLE),
    ("import, trimmed", TRIMMED),
    ("accelerate", "import"),
    ("accelerate, trimmed", "import, trimmed"),
    ("model(batch)", "import, trimmed"),
    ("native batches", "import, trimmed"),
)


def title(series: Result) -> str:
    return f"{TITLES[series['model']]}, {setting(series)}"


def table(result: Result) -> str:
    """Returns milliseconds per step, and how many times as fast a script is as another."""
    found = result["series"]
    taken = markdown(
        ["ms per step", *NAMES],
        [[title(one), *(milliseconds(figures_of(one).get(name)) for name in NAMES)] for one in found],
    )
    header = [f"{script} against {other}" for script, other in STEPS]
    gains = [[title(one), *(times(one, script, other) for script, other in STEPS)] for one in found]
    return f"{taken}\n\n{markdown(['times as fast', *header], gains)}{absences(found)}"


#: The modules of a user's own that the tables begin with.
OWN = {
    "own-sage": "own module, SAGEConv",
    "own-gat": "own module, GATConv",
    "own-transformer": "own module, TransformerConv",
}
#: The graphs of the tables of README.md (the first) and of the tutorial, in words.
GAINS = {"products-like": "like ogbn-products", "amazon_photo": "small and real (amazon_photo)"}


def gains(results: Path, graphs: Sequence[str] = tuple(GAINS)) -> str:
    return "\n\n".join(_gains(results, graph) for graph in graphs)


def _gains(results: Path, graph: str) -> str:
    file = results / f"accelerate-{graph}.json"
    if not file.is_file():
        return "Not measured yet: `python -m benchmark accelerate`."
    scripts = {
        **{"unchanged": "PyG", "unchanged, trimmed": "PyG, trimmed", "import": "import alone"},
        **{"accelerate": "`accelerate`", "model(batch)": "`model(batch)`"},
    }
    found = [(TITLES[one["model"]], one) for one in read_json(file)["series"] if one["threads"] == 1]
    rows = [
        [name, *(_step(one, script) for script in scripts)] for name, one in [*_own(results, graph), *found]
    ]
    return markdown([GAINS[graph], *scripts.values()], rows)


def _own(results: Path, graph: str) -> list[tuple[str, Result]]:
    """Returns the names and the series of modules of a user's own, as a script leaves the
    allocator."""
    measured = {
        one["row"]: one
        for one in read_json(results / "own_models.json").get("series", [])
        if (one["threads"], one["malloc"]) == (1, "default")
    }
    shown = [row for row in ROWS.values() if row.graph == graph and row.model in OWN]
    return [(OWN[row.model], measured.get(row.name, {"contestants": {}})) for row in shown]


def _step(series: Result, name: str) -> str:
    if name not in figures_of(series):
        return "-"
    taken = f"{1e3 * figures_of(series)[name][SECONDS]:,.0f} ms"
    ratio = times(series, name, WHOLE)
    return taken if name == WHOLE or ratio == "-" else f"{taken} ({ratio})"


plot = steps_plot(NAMES, [name for name in NAMES if name.startswith(("unchanged", "import"))], title)
