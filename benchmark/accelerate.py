"""A user's script, and the same after one changed import, `accelerate`, and native batches.

PyG's models and two modules of a user's own have two layers, and are called whole or trimmed, as
scripts do. Without pyg-lib PyG's loader cannot sample; then the scripts with the changed import are
what others are compared with. Without --graph it runs on a generated graph with the size, degrees,
features and classes of ogbn-products, and on a small real one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmark.networks.pyg import OWN
from benchmark.networks.recipe import TITLES
from benchmark.support.cli import BenchmarkRun, parser
from benchmark.support.graphs import dataset_folder
from benchmark.support.harness import Players, ProcessSetting
from benchmark.support.plots import OURS_COLOUR, PEER_COLOUR, bars, subplots
from benchmark.support.tables import SECONDS, Result, absences, figures_of, markdown, milliseconds, setting

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
    ("import", "ours", "import", 1),
    ("import, trimmed", "ours", "import-trimmed", 1),
    ("accelerate", "ours", "accelerate", 0),
    ("accelerate, trimmed", "ours", "accelerate-trimmed", 0),
    ("model(batch)", "ours", "batch", 0),
    ("native batches", "ours", "native", 0),
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


#: The ways to call a model, the scripts that do so, and what they are compared with.
WHOLE, TRIMMED = "unchanged", "unchanged, trimmed"
NAMES = (
    *(WHOLE, TRIMMED, "import", "import, trimmed", "accelerate", "accelerate, trimmed"),
    *("model(batch)", "native batches"),
)
#: A script and the one before the step, called alike.
STEPS = (
    ("import", WHOLE),
    ("import, trimmed", TRIMMED),
    ("accelerate", "import"),
    ("accelerate, trimmed", "import, trimmed"),
    ("model(batch)", "import, trimmed"),
    ("native batches", "import, trimmed"),
)


def network(series: Result) -> str:
    """Returns the network in words."""
    own = {"own-sage": "own module, SAGEConv", "own-gat": "own module, GATConv"}
    return {**TITLES, **own}[series["model"]]


def title(series: Result) -> str:
    """Returns the network and the setting."""
    return f"{network(series)}, {setting(series)}"


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


def times(series: Result, script: str, other: str) -> str:
    """Returns how many times as fast a script is as another, or a dash."""
    figures = figures_of(series)
    if script not in figures or other not in figures:
        return "-"
    return f"{figures[other][SECONDS] / figures[script][SECONDS]:.1f}x"


#: The graphs of the tables of README.md (the first) and of the tutorial, in words.
GAINS = {
    "products-like": "like ogbn-products",
    "amazon_photo": "small and real (amazon_photo)",
}


def gains(results: Path, graphs: Sequence[str] = tuple(GAINS)) -> str:
    """Returns the tables of README.md and of the tutorial: a step on one thread, by graph."""
    return "\n\n".join(_gains(results / f"accelerate-{graph}.json", GAINS[graph]) for graph in graphs)


def _gains(file: Path, words: str) -> str:
    if not file.is_file():
        return "Not measured yet: `python -m benchmark accelerate`."
    scripts = {
        **{"unchanged": "PyG", "unchanged, trimmed": "PyG, trimmed", "import": "import alone"},
        **{"accelerate": "`accelerate`", "model(batch)": "`model(batch)`"},
    }
    found = [one for one in json.loads(file.read_text())["series"] if one["threads"] == 1]
    rows = [[network(one), *(_step(one, name) for name in scripts)] for one in found]
    return markdown([words, *scripts.values()], rows)


def _step(series: Result, name: str) -> str:
    """Returns the milliseconds of a step, and how many times as fast it is as unchanged."""
    if name not in figures_of(series):
        return "-"
    taken = f"{1e3 * figures_of(series)[name][SECONDS]:,.0f} ms"
    ratio = times(series, name, WHOLE)
    return taken if name == WHOLE or ratio == "-" else f"{taken} ({ratio})"


def plot(result: Result) -> Any:
    """Draws one panel per series, with the ms per step of each script."""
    found = result["series"]
    rows = -(-len(found) // 2)
    figure, axes = subplots(rows, 2, figsize=(11, 2.3 * rows))
    for panel, series in zip(axes.flat, found, strict=False):
        figures = figures_of(series)
        names = [name for name in NAMES if name in figures]
        bars(panel, names, [1e3 * figures[name][SECONDS] for name in names], "ms per step", title(series))
        for bar, name in zip(panel.patches, names[::-1], strict=True):
            bar.set_color(PEER_COLOUR if name.startswith(("unchanged", "import")) else OURS_COLOUR)
    for panel in list(axes.flat)[len(found) :]:
        panel.set_visible(False)
    return figure
