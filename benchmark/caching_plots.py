"""The pictures of the aggregation cache's benchmark."""

from __future__ import annotations

from statistics import median
from typing import Any

import matplotlib.pyplot as plt

from caching_tables import WAYS
from distributed_tables import by, of_ranks, size_name
from tables import Result

COLOURS = {"without": "#b0b0b0", "with": "#1f77b4", "with, tested without": "#9ecae1"}
QUANTITIES = {"preparation": "s to prepare an epoch", "training": "s an epoch"}


def caching_plot(result: Result) -> Any:
    """Seconds with and without, a panel a part; or accuracy, a panel a data set."""
    if "accuracy" in result:
        groups = list(by(result["accuracy"], "dataset"))
        figure, axes = plt.subplots(1, max(len(groups), 1), figsize=(11, 3.2), squeeze=False)
        for panel, (dataset, of_dataset) in zip(axes.flat, groups, strict=False):
            _pairs(panel, {one["model"]: one["mean"] for one in of_dataset}, "test accuracy, %")
            least = min(value for one in of_dataset for value in one["mean"].values())
            panel.set_ylim(bottom=max(0, least - 10))
            panel.set_title(dataset, fontsize=10)
        return figure
    parts = {name: result["parts"][name] for name in QUANTITIES if name in result["parts"]}
    figure, axes = plt.subplots(1, max(len(parts), 1), figsize=(5.5 * max(len(parts), 1), 3.2), squeeze=False)
    for panel, (name, part) in zip(axes.flat, parts.items(), strict=False):
        _pairs(panel, _seconds(part), QUANTITIES[name])
        panel.set_title(part["series"][0]["network"], fontsize=10)
    return figure


def _seconds(part: Result) -> dict[str, dict[str, float]]:
    """Of the slowest rank, by setting and way."""
    found: dict[str, dict[str, float]] = {}
    for model, of_model in by(part["series"], "model"):
        for size, entries in by(of_model, "macrobatch"):
            ways = {
                WAYS[cached]: median(max(of_ranks(one, "wall")) for one in of_way)
                for cached, of_way in by(entries, "cached")
            }
            found[f"{model}\nB = {size_name(size)}"] = {way: ways[way] for way in WAYS.values()}
    return found


def _pairs(axes: Any, values: dict[str, dict[str, float]], label: str) -> None:
    """Bars side by side: groups on the axis, ways in colours."""
    ways = list(next(iter(values.values()), {}))
    wide = 0.8 / max(len(ways), 1)
    for number, way in enumerate(ways):
        places = [at + (number - (len(ways) - 1) / 2) * wide for at in range(len(values))]
        heights = [of_group[way] for of_group in values.values()]
        bars = axes.bar(places, heights, wide, label=way, color=COLOURS[way])
        axes.bar_label(bars, labels=[f"{height:.1f}" for height in heights], padding=2, fontsize=7)
    axes.set_xticks(range(len(values)), list(values), fontsize=8)
    axes.set_ylabel(label)
    axes.margins(y=0.15)
    axes.legend(fontsize=7)
