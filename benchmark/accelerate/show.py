"""The tables and the picture of scripts that become faster step by step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from benchmark.networks.recipe import TITLES
from benchmark.support.plots import OURS_COLOUR, PEER_COLOUR
from benchmark.support.tables import Result, absences, figures_of, milliseconds, setting
from benchmark.support.tables import table as markdown

SECONDS = "wall_per_minibatch"
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
        [
            [title(one), *(milliseconds(figures_of(one).get(name), SECONDS) for name in NAMES)]
            for one in found
        ],
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
    figure, axes = plt.subplots(rows, 2, figsize=(11, 2.3 * rows), squeeze=False)
    for panel, series in zip(axes.flat, found, strict=False):
        figures = figures_of(series)
        names = [name for name in NAMES if name in figures][::-1]
        old = ("unchanged", "import")
        colours = [PEER_COLOUR if name.startswith(old) else OURS_COLOUR for name in names]
        bars = panel.barh(names, [1e3 * figures[name][SECONDS] for name in names], color=colours)
        panel.bar_label(bars, fmt="{:,.0f}", padding=3)
        panel.margins(x=0.2)
        panel.set_title(title(series), fontsize=10)
        panel.set_xlabel("ms per step")
    for panel in list(axes.flat)[len(found) :]:
        panel.set_visible(False)
    return figure
