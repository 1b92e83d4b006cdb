"""A picture of every result file, beside it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

from caching_plots import caching_plot
from communication import show as communication
from distributed_tables import by, of_ranks, size_name
from growth_show import growth_plot
from planning_tables import planning_plot
from tables import SIDE_NAMES
from training_tables import rows

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


def _training_plot(result: Result) -> Any:
    """A panel a network and setting: ms a step of everyone."""
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
        panel.set_xlabel("ms a step")
        panel.locator_params(axis="x", nbins=5)
    return figure


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


def _footprint_plot(result: Result) -> Any:
    """Peak memory of everyone: what graph, features and network take, and what steps add."""
    settings = list(dict.fromkeys((one["model"], one["threads"], one["malloc"]) for one in result["series"]))
    figure, axes = plt.subplots(1, len(settings), figsize=(5.5 * len(settings), 3), squeeze=False)
    for panel, key in zip(axes.flat, settings, strict=True):
        chosen = [one for one in result["series"] if (one["model"], one["threads"], one["malloc"]) == key]
        everyone = {name: one for series in chosen for name, one in series["contestants"].items()}
        names = list(everyone)[::-1]
        ready = [everyone[name]["ready"] / 2**30 for name in names]
        more = [
            max(0.0, everyone[name]["median"]["peak"] / 2**30 - r)
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


def _differences(axes: Any, result: Result, side: str, other: str) -> None:
    """Paired differences of test accuracy, a dot a seed, with mean and lower bound."""
    datasets = result["datasets"].items()
    shown = {name: found for name, found in datasets if {side, other} <= set(found["tests"])}
    for place, found in enumerate(shown.values()):
        pairs = zip(found["tests"][side], found["tests"][other], strict=True)
        axes.plot(
            [place] * found["seeds"], [100 * (a - b) for a, b in pairs], "o", color=PEER_COLOUR, alpha=0.6
        )
        (against,) = (p for p in found["pairs"] if (p["side"], p["against"]) == (side, other))
        spread = against["mean_difference"] - against["lower_95"]
        axes.errorbar(
            place, against["mean_difference"], yerr=[[spread], [0]], fmt="D", color=OURS_COLOUR, capsize=6
        )
    axes.axhline(0, color="black", linewidth=0.5)
    axes.set_xticks(range(len(shown)), list(shown))
    axes.set_title(f"{SIDE_NAMES[side]} minus {SIDE_NAMES[other]}", fontsize=10)
    axes.set_ylabel("accuracy points")


def _accuracy_plot(result: Result) -> Any:
    """Our sampler against the reference, and bfloat16 against float32."""
    pairs = [("ours", "reference"), ("native-bfloat16", "native")]
    measured = [set(found["tests"]) for found in result["datasets"].values()]
    pairs = [pair for pair in pairs if any(set(pair) <= tests for tests in measured)]
    figure, axes = plt.subplots(1, len(pairs), figsize=(6.5 * len(pairs), 3.2), squeeze=False)
    for one, pair in zip(axes.flat, pairs, strict=True):
        _differences(one, result, *pair)
    return figure


def _convergence_plot(result: Result) -> Any:
    """Median validation accuracy against seconds, a panel a data set."""
    count = len(result["datasets"])
    across = min(count, 4)
    down = -(-count // across)
    figure, axes = plt.subplots(down, across, figsize=(3.6 * across, 3.0 * down), squeeze=False)
    for empty in axes.flat[count:]:
        empty.axis("off")
    for one, (dataset, found) in zip(axes.flat, result["datasets"].items(), strict=False):
        for side, colour in (("native", OURS_COLOUR), ("pyg", PEER_COLOUR)):
            curve = found["sides"][side]
            one.plot(curve["curve_seconds"], curve["curve"], "o-", markersize=3, color=colour, label=side)
        one.axhline(found["target"], color="black", linewidth=0.5)
        one.set_title(dataset, fontsize=10)
        one.set_xlabel("seconds")
    for one in axes[:, 0]:
        one.set_ylabel("validation accuracy, %")
    axes[0][0].legend()
    return figure


def _distributed_plot(result: Result) -> Any:
    """Seconds to prepare an epoch against the macrobatch size, and rows fetched beside the least."""
    parts = {name: result["parts"][name] for name in ("network", "rows") if name in result["parts"]}
    figure, axes = plt.subplots(1, max(len(parts), 1), figsize=(5.5 * max(len(parts), 1), 3.2), squeeze=False)
    for panel, (name, part) in zip(axes.flat, parts.items(), strict=True):
        DRAWN[name](panel, part)
    return figure


def _preparation(axes: Any, part: Result) -> None:
    """Bars of the slowest rank's seconds."""
    found = {
        size_name(size): statistics.median(max(of_ranks(one, "wall")) for one in entries)
        for size, entries in by(part["series"], "macrobatch")
    }
    bars = axes.bar(list(found), list(found.values()), color=OURS_COLOUR)
    axes.bar_label(bars, labels=[f"{seconds:.1f}" for seconds in found.values()], padding=2)
    axes.set_xlabel("minibatches made together")
    axes.set_ylabel("s to prepare an epoch")
    axes.set_title(f"{len(part['series'][0]['of_ranks'])} hosts, {part['network']} links", fontsize=10)
    axes.margins(y=0.15)


def _fetched(axes: Any, part: Result) -> None:
    """Rows of a rank at B = 1 and B = all, a line for the least that is possible."""
    chosen = [one for one in part["series"] if not one["hybrid"]]
    names = [f"{one['ranks']} ranks\nB = {size_name(one['macrobatch'])}" for one in chosen]
    rows = [statistics.mean(of_ranks(one, "rows_fetched")) / 1e6 for one in chosen]
    least = [statistics.mean(of_ranks(one, "distinct")) / 1e6 for one in chosen]
    bars = axes.bar(names, rows, color=OURS_COLOUR)
    axes.bar_label(bars, labels=[f"{value:.2f}" for value in rows], padding=2)
    left, right = ([at + by_half for at in range(len(least))] for by_half in (-0.4, 0.4))
    axes.hlines(least, left, right, color="black", label="distinct remote rows: the least")
    axes.set_ylabel("million feature rows a rank")
    axes.set_title("fetched in an epoch", fontsize=10)
    axes.margins(y=0.15)
    axes.legend()


def _rank_accuracy_plot(result: Result) -> Any:
    """Mean paired difference to one process and its lower bound, a mark a data set and number of ranks."""
    figure, axes = plt.subplots(figsize=(5.5, 3.2))
    names: list[str] = []
    for dataset, found in result["datasets"].items():
        for figures in found["pairs"]:
            low = figures["mean_difference"] - figures["lower_95"]
            axes.errorbar(
                len(names),
                figures["mean_difference"],
                yerr=[[low], [0]],
                fmt="D",
                color=OURS_COLOUR,
                capsize=6,
            )
            names.append(f"{dataset}\n{figures['ranks']} ranks")
    axes.axhline(0, color="black", linewidth=0.5)
    axes.axhline(-0.5, color=PEER_COLOUR, linewidth=0.5, linestyle="--")
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.margins(x=0.15)
    axes.set_ylabel("accuracy points against one process")
    return figure


DRAWN: dict[str, Callable[[Any, Result], None]] = {"network": _preparation, "rows": _fetched}

PLOTS: dict[str, Callable[[Result], Any]] = {
    "sampling": _series_plot("edges_per_second", 1e-6, "million edges a second"),
    "loading": _series_plot("wall_per_minibatch", 1e3, "ms a minibatch"),
    "training": _training_plot,
    "memory": _memory_plot,
    "footprint": _footprint_plot,
    "accuracy": _accuracy_plot,
    "convergence": _convergence_plot,
    "distributed": _distributed_plot,
    "planning": planning_plot,
    "rank_accuracy": _rank_accuracy_plot,
    "caching": caching_plot,
    "communication": communication.plot,
    "growth": growth_plot,
}


def plot_all(results: Path) -> None:
    """Draw every ``*.json`` of a folder as a ``.png`` of the same name."""
    for file in sorted(results.glob("*.json")):
        result = json.loads(file.read_text())
        if "graph" in result and not (result.get("series") or result.get("parts")):
            continue
        figure = PLOTS[result["benchmark"]](result)
        figure.suptitle(
            f"{result['benchmark']} {result.get('graph', {}).get('name', '')}".strip(), fontsize=11
        )
        figure.tight_layout()
        figure.savefig(file.with_suffix(".png"), dpi=110, metadata={"Software": None})
        plt.close(figure)
