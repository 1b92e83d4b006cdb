"""The tables and the picture of training steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import matplotlib.pyplot as plt

from benchmark.networks.recipe import MODELS, TITLES
from benchmark.support.plots import OURS_COLOUR, PEER_COLOUR
from benchmark.support.tables import OURS, Result, absences, figures_of, setting
from benchmark.support.tables import table as markdown

BFLOAT16 = "ours, bfloat16"
OWN_LOADER = "ours, PyG's layers"
OTHERS = ("PyG trim_to_layer", "PyG hand-written slices", "DGL")
SECONDS = "wall_per_minibatch"


@dataclass
class Row:
    """One network and setting, over all tables that it was measured at.

    Attributes:
        name: network, threads and allocator.
        seconds: a step of each contestant, at the quietest of its tables.
        times: how many times as fast as each contestant ours was, at the same table (the last of
            those).
    """

    model: str
    threads: int
    name: str
    seconds: dict[str, float] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)


def rows(result: Result) -> Iterator[Row]:
    """Yields the networks in their order, each with its settings."""
    found: dict[tuple[str, int, str], Row] = {}
    for series in result["series"]:
        key = (series["model"], series["threads"], series["malloc"])
        row = found.setdefault(key, Row(key[0], key[1], f"{TITLES[key[0]]}, {setting(series)}"))
        figures = {name: one[SECONDS] for name, one in figures_of(series).items()}
        for name, seconds in figures.items():
            row.seconds[name] = min(seconds, row.seconds.get(name, seconds))
        if OURS in figures:
            row.times.update({name: seconds / figures[OURS] for name, seconds in figures.items()})
    order = sorted(found, key=lambda key: (MODELS.index(key[0]), key[2], key[1]))
    return (found[key] for key in order)


def table(result: Result) -> str:
    """Returns milliseconds per step, how many times as fast ours is, and what a step needs."""
    found = list(rows(result))
    names = [OURS, BFLOAT16, OWN_LOADER, *OTHERS]
    taken = markdown(
        ["ms per step", *names], [[row.name, *(milliseconds(row, name) for name in names)] for row in found]
    )
    limits = result["limits"]
    ratios = markdown(
        [
            "ours is faster than",
            *OTHERS,
            OWN_LOADER,
            "bfloat16 against float32",
            "of what it needs",
            "bfloat16",
        ],
        [
            [
                row.name,
                *(times(row, name) for name in (*OTHERS, OWN_LOADER)),
                bfloat16_gain(row),
                share(row, limits, OURS, "float32"),
                share(row, limits, BFLOAT16, "bfloat16"),
            ]
            for row in found
        ],
    )
    parts = [taken, ratios, *([needed(result)] if limits else [])]
    return "\n\n".join(parts) + absences(still_absent(result, found))


def milliseconds(row: Row, name: str) -> str:
    """Returns one cell of the first table."""
    return f"{1e3 * row.seconds[name]:,.0f}" if name in row.seconds else "-"


def times(row: Row, name: str) -> str:
    """Returns one cell of the second table."""
    return f"{row.times[name]:.1f}x" if name in row.times else "-"


def share(row: Row, limits: Result, name: str, dtype: str) -> str:
    """The time that gathers and products need, in per cent of the time taken."""
    limit = limits.get(str(row.threads), {}).get(row.model)
    if limit is None or name not in row.seconds:
        return "-"
    return f"{100 * sum(limit['seconds'][dtype].values()) / row.seconds[name]:.0f} %"


def bfloat16_gain(row: Row) -> str:
    """Returns how many times as fast bfloat16 is, against our own float32."""
    return f"{1 / row.times[BFLOAT16]:.2f}x" if BFLOAT16 in row.times else "-"


def needed(result: Result) -> str:
    """Returns what a step needs, and the time that it takes at the measured rates."""
    lines = []
    for threads, models in sorted(result["limits"].items()):
        for model, limit in models.items():
            for dtype, seconds in limit["seconds"].items():
                lines.append(
                    [
                        f"{TITLES[model]}, {threads} thread{'s' if threads != '1' else ''}, {dtype}",
                        f"{limit['operations'] / 1e9:.1f}",
                        f"{limit['gathered_bytes'][dtype] / 1e6:,.0f}",
                        *(f"{1e3 * seconds[part]:,.0f}" for part in ("sampling", "gathers", "products")),
                        f"{1e3 * sum(seconds.values()):,.0f}",
                    ]
                )
    header = [
        "a step needs",
        "GFLOP",
        "MB gathered",
        "sampling ms",
        "gathers ms",
        "products ms",
        "together ms",
    ]
    return markdown(header, lines)


def still_absent(result: Result, found: list[Row]) -> list[dict[str, dict[str, str]]]:
    """Returns what no table of a row could measure; a contestant may fit into a smaller one."""
    measured = {row.name: set(row.seconds) for row in found}
    return [
        {
            "absent": {
                name: why
                for name, why in series["absent"].items()
                if name not in measured[f"{TITLES[series['model']]}, {setting(series)}"]
            }
        }
        for series in result["series"]
    ]


def plot(result: Result) -> Any:
    """Draws one panel per network and setting, with the ms per step of each contestant."""
    found = list(rows(result))
    settings = list(dict.fromkeys(row.name.split(", ", 1)[1] for row in found))
    models = list(dict.fromkeys(row.model for row in found))
    figure, axes = plt.subplots(
        len(models), len(settings), figsize=(5 * len(settings), 2.2 * len(models)), squeeze=False
    )
    for panel in axes.flat:  # not everything is measured
        panel.set_visible(False)
    for row in found:
        title, place = row.name.split(", ", 1)
        panel = axes[models.index(row.model)][settings.index(place)]
        panel.set_visible(True)
        names = sorted(row.seconds, key=lambda name: not name.startswith("ours"))[::-1]
        colours = [OURS_COLOUR if name.startswith("ours") else PEER_COLOUR for name in names]
        bars = panel.barh(names, [1e3 * row.seconds[name] for name in names], color=colours)
        panel.bar_label(bars, labels=[f"{1e3 * row.seconds[name]:,.0f}" for name in names], padding=3)
        panel.margins(x=0.25)
        panel.set_title(f"{title}, {place}", fontsize=10)
        panel.set_xlabel("ms per step")
        panel.locator_params(axis="x", nbins=5)
    return figure
