"""A picture of every result file, beside it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

OURS_COLOUR, PEER_COLOUR = "#1f77b4", "#b0b0b0"
Result = dict[str, Any]


def _bars(axes: Any, series: Result, quantity: str, scale: float, label: str) -> None:
    """Horizontal bars of one setting, ours in colour."""
    names = sorted(series["contestants"], key=lambda name: not name.startswith("ours"))[::-1]
    values = [scale * series["contestants"][name]["median"][quantity] for name in names]
    colours = [OURS_COLOUR if name.startswith("ours") else PEER_COLOUR for name in names]
    bars = axes.barh(names, values, color=colours)
    axes.bar_label(
        bars, labels=[f"{value:,.0f}" if value >= 100 else f"{value:.1f}" for value in values], padding=3
    )
    axes.margins(x=0.2)
    axes.set_xlabel(label)
    axes.set_title(f"{series['threads']} thread(s), malloc {series['malloc']}", fontsize=10)


def _by_setting(result: Result) -> list[Result]:
    """Series of the same threads and allocator in one, each contestant with its first figures."""
    merged: dict[tuple[int, str], Result] = {}
    for series in result["series"]:
        one = merged.setdefault((series["threads"], series["malloc"]), {**series, "contestants": {}})
        one["contestants"] = {**series["contestants"], **one["contestants"]}
    return list(merged.values())


def _series_plot(quantity: str, scale: float, label: str) -> Callable[[Result], Any]:
    def plot(result: Result) -> Any:
        settings = _by_setting(result)
        rows = -(-len(settings) // 2)
        figure, axes = plt.subplots(rows, min(2, len(settings)), figsize=(11, 3 * rows), squeeze=False)
        for one, series in zip(axes.flat, settings, strict=False):
            _bars(one, series, quantity, scale, label)
        return figure

    return plot


def _memory_plot(result: Result) -> Any:
    """Resident memory of our loader against minibatches done."""
    rounds = result["long"]["rounds"]
    done, at = 0, []
    for one in rounds:
        done += one["minibatches"]
        at.append(done)
    figure, axes = plt.subplots(figsize=(5.5, 3.2))
    resident = [one["resident"] / 2**20 for one in rounds]
    axes.plot(at, resident, "o-", markersize=3, color=OURS_COLOUR)
    axes.set_ylim(0, 1.2 * max(resident))
    growth = result["long"]["growth"]["slope_mib_per_1000"]
    axes.set_title(f"after the first 500: {growth:+.2f} MiB per 1,000 minibatches", fontsize=10)
    axes.set_xlabel("minibatches")
    axes.set_ylabel("resident memory, MiB")
    return figure


def _accuracy_plot(result: Result) -> Any:
    """Paired differences of test accuracy against the reference sampler, a dot a seed."""
    figure, axes = plt.subplots(figsize=(6.5, 3.2))
    shown = {name: d for name, d in result["datasets"].items() if {"ours", "reference"} <= set(d["tests"])}
    for place, (_, found) in enumerate(shown.items()):
        pairs = zip(found["tests"]["ours"], found["tests"]["reference"], strict=True)
        axes.plot(
            [place] * found["seeds"], [100 * (a - b) for a, b in pairs], "o", color=PEER_COLOUR, alpha=0.6
        )
        against = found["ours_against"]["reference"]
        spread = against["mean_difference"] - against["lower_95"]
        axes.errorbar(
            place, against["mean_difference"], yerr=[[spread], [0]], fmt="D", color=OURS_COLOUR, capsize=6
        )
    axes.axhline(0, color="black", linewidth=0.5)
    axes.set_xticks(range(len(shown)), list(shown))
    axes.set_ylabel("accuracy points, ours minus reference")
    return figure


PLOTS: dict[str, Callable[[Result], Any]] = {
    "sampling": _series_plot("edges_per_second", 1e-6, "million edges a second"),
    "loading": _series_plot("wall_per_minibatch", 1e3, "ms a minibatch"),
    "training": _series_plot("wall_per_minibatch", 1e3, "ms a step"),
    "memory": _memory_plot,
    "accuracy": _accuracy_plot,
}


def plot_all(results: Path) -> None:
    """Draw every ``*.json`` of a folder as a ``.png`` of the same name."""
    for file in sorted(results.glob("*.json")):
        result = json.loads(file.read_text())
        if "graph" in result and not result.get("series"):
            continue
        figure = PLOTS[result["benchmark"]](result)
        figure.suptitle(
            f"{result['benchmark']} {result.get('graph', {}).get('name', '')}".strip(), fontsize=11
        )
        figure.tight_layout()
        figure.savefig(file.with_suffix(".png"), dpi=110, metadata={"Software": None})
        plt.close(figure)
