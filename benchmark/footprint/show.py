"""The table and the picture of the memory of training steps."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt

from benchmark.networks.recipe import TITLES
from benchmark.support.plots import OURS_COLOUR, PEER_COLOUR
from benchmark.support.tables import Result, absences, setting
from benchmark.support.tables import table as markdown


def table(result: Result) -> str:
    """Returns the memory of a step, and its page faults and allocations once it is warm."""
    lines = []
    for series in result["series"]:
        for name, one in series["contestants"].items():
            figures, ready = one["figures"], one["ready"]
            lines.append(
                [
                    f"{TITLES[series['model']]}, {setting(series)}: {name}",
                    f"{figures['peak'] / 2**20:,.0f}",
                    f"{ready / 2**20:,.0f}",
                    f"{(figures['peak'] - ready) / 2**20:,.0f}",
                    f"{figures['faults_per_minibatch']:,.0f}",
                    f"{figures['large_allocation_calls_per_minibatch']:,.1f}",
                    f"{figures['large_allocation_bytes_per_minibatch'] / 2**20:,.1f}",
                ]
            )
    header = ["", "peak MiB", "before the first step", "more for steps"]
    header += ["page faults per step", "allocations of a page or more", "their MiB"]
    return markdown(header, lines) + absences(result["series"])


def plot(result: Result) -> Any:
    """Draws the peak memory: what graph, features and network take, and what steps add."""
    settings = list(dict.fromkeys((one["model"], one["threads"], one["malloc"]) for one in result["series"]))
    figure, axes = plt.subplots(1, len(settings), figsize=(5.5 * len(settings), 3), squeeze=False)
    for panel, key in zip(axes.flat, settings, strict=True):
        chosen = [one for one in result["series"] if (one["model"], one["threads"], one["malloc"]) == key]
        everyone = {name: one for series in chosen for name, one in series["contestants"].items()}
        names = list(everyone)[::-1]
        ready = [everyone[name]["ready"] / 2**30 for name in names]
        more = [
            max(0.0, everyone[name]["figures"]["peak"] / 2**30 - r)
            for name, r in zip(names, ready, strict=True)
        ]
        colours = [OURS_COLOUR if name.startswith("ours") else PEER_COLOUR for name in names]
        panel.barh(names, ready, color="#e0e0e0")
        bars = panel.barh(names, more, left=ready, color=colours)
        panel.bar_label(bars, labels=[f"+{value:.1f}" for value in more], padding=3)
        panel.margins(x=0.15)
        panel.set_xlabel("GiB")
        panel.set_title(f"{key[0]}, {key[1]} thread(s), malloc {key[2]}", fontsize=10)
    return figure
