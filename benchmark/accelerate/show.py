"""The tables and the picture of scripts that become faster step by step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from benchmark.networks.recipe import TITLES
from benchmark.support.plots import OURS_COLOUR, PEER_COLOUR
from benchmark.support.tables import Result, absences, medians, milliseconds, setting
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


def title(series: Result) -> str:
    """Returns the network, its depth and the setting."""
    return f"{TITLES[series['model']]}, {series['layers']} layers, {setting(series)}"


def table(result: Result) -> str:
    """Returns milliseconds per step, and how many times as fast a script is as another."""
    found = result["series"]
    taken = markdown(
        ["ms per step", *NAMES],
        [[title(one), *(milliseconds(medians(one).get(name), SECONDS) for name in NAMES)] for one in found],
    )
    header = [f"{script} against {other}" for script, other in STEPS]
    gains = [[title(one), *(times(one, script, other) for script, other in STEPS)] for one in found]
    return f"{taken}\n\n{markdown(['times as fast', *header], gains)}{absences(found)}"


def times(series: Result, script: str, other: str) -> str:
    """Returns how many times as fast a script is as another, or a dash."""
    figures = medians(series)
    if script not in figures or other not in figures:
        return "-"
    return f"{figures[other][SECONDS] / figures[script][SECONDS]:.1f}x"


def gains(results: Path) -> str:
    """Returns the table of README.md and of the tutorial: a step of two layers on one thread."""
    file = results / "accelerate-products-like.json"
    if not file.is_file():
        return "Not measured yet: `python -m benchmark accelerate`."
    scripts = {
        **{"unchanged": "unchanged script", "import": "import alone", "accelerate": "and `accelerate`"},
        **{"model(batch)": "`model(batch)`", "native batches": "native batches"},
    }
    rows = []
    for series in json.loads(file.read_text())["series"]:
        figures = medians(series)
        if (series["threads"], series["layers"]) == (1, 2):
            cells = [_step(series, name) if name in figures else "-" for name in scripts]
            rows.append([f"{TITLES[series['model']]}, 2 layers", *cells])
    return markdown(["a step", *scripts.values()], rows)


def _step(series: Result, name: str) -> str:
    """Returns the milliseconds of a step, and how many times as fast it is as unchanged."""
    taken = f"{1e3 * medians(series)[name][SECONDS]:,.0f} ms"
    ratio = times(series, name, WHOLE)
    return taken if name == WHOLE or ratio == "-" else f"{taken} ({ratio})"


def plot(result: Result) -> Any:
    """Draws one panel per series, with the ms per step of each script."""
    found = result["series"]
    rows = -(-len(found) // 2)
    figure, axes = plt.subplots(rows, 2, figsize=(11, 2.3 * rows), squeeze=False)
    for panel, series in zip(axes.flat, found, strict=False):
        figures = medians(series)
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
