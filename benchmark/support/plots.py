"""The parts that the pictures of several experiments share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt

from benchmark.support.tables import Result

OURS_COLOUR, PEER_COLOUR = "#1f77b4", "#b0b0b0"


def series_plot(quantity: str, scale: float, label: str) -> Callable[[Result], Any]:
    def plot(result: Result) -> Any:
        settings = _by_setting(result)
        rows = -(-len(settings) // 2)
        figure, axes = plt.subplots(rows, min(2, len(settings)), figsize=(11, 3 * rows), squeeze=False)
        for one, series in zip(axes.flat, settings, strict=False):
            _bars(one, series, quantity, scale, label)
        return figure

    return plot


def _by_setting(result: Result) -> list[Result]:
    """Joins the series of the same threads and allocator; contestants keep their first figures."""
    merged: dict[tuple[int, str], Result] = {}
    for series in result["series"]:
        one = merged.setdefault((series["threads"], series["malloc"]), {**series, "contestants": {}})
        one["contestants"] = {**series["contestants"], **one["contestants"]}
    return list(merged.values())


def _bars(axes: Any, series: Result, quantity: str, scale: float, label: str) -> None:
    """Draws horizontal bars of one setting, ours in colour."""
    names = sorted(series["contestants"], key=lambda name: not name.startswith("ours"))[::-1]
    values = [scale * series["contestants"][name]["figures"][quantity] for name in names]
    colours = [OURS_COLOUR if name.startswith("ours") else PEER_COLOUR for name in names]
    bars = axes.barh(names, values, color=colours)
    axes.bar_label(
        bars, labels=[f"{value:,.0f}" if value >= 100 else f"{value:.1f}" for value in values], padding=3
    )
    axes.margins(x=0.2)
    axes.set_xlabel(label)
    axes.set_title(f"{series['threads']} thread(s), malloc {series['malloc']}", fontsize=10)
