"""The table and the picture of test accuracies."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt

from benchmark.support.plots import OURS_COLOUR, PEER_COLOUR
from benchmark.support.tables import Result
from benchmark.support.tables import table as markdown

SIDE_NAMES = {
    "ours": "PyG's layers, our minibatches",
    "reference": "reference sampler",
    "pyg": "PyG's sampler",
    "native": "native layers",
    "native-bfloat16": "native layers, bfloat16",
}


def table(result: Result) -> str:
    """Returns the mean test results and the paired differences with their lower bounds."""
    rows = []
    for task, found in result["datasets"].items():
        metric = found.get("metric", "accuracy")
        for figures in found["pairs"]:
            side, other = figures["side"], figures["against"]
            rows.append(
                [
                    task if metric == "accuracy" else f"{task} ({metric})",
                    str(found["seeds"]),
                    SIDE_NAMES[side],
                    SIDE_NAMES[other],
                    f"{found['mean'][side]:.2f}",
                    f"{found['mean'][other]:.2f}",
                    f"{figures['mean_difference']:+.2f}",
                    f"{figures['lower_95']:+.2f}",
                    f"-{found['task']['allowed_loss']:.1f}",
                ]
            )
    header = ["", "seeds", "", "against", "%", "against %", "mean difference", "lower 95 % bound", "at least"]
    return markdown(header, rows)


def plot(result: Result) -> Any:
    """Draws our sampler against the reference, native layers against PyG's, and bfloat16 against
    float32."""
    pairs = [("ours", "reference"), ("native", "ours"), ("native-bfloat16", "native")]
    counts = [
        sum(set(pair) <= set(found["tests"]) for found in result["datasets"].values()) for pair in pairs
    ]
    shown = {pair: count for pair, count in zip(pairs, counts, strict=True) if count}
    widths = [2 + count for count in shown.values()]
    figure, axes = plt.subplots(1, len(shown), figsize=(sum(widths), 4), squeeze=False, width_ratios=widths)
    for one, pair in zip(axes.flat, shown, strict=True):
        _differences(one, result, *pair)
    return figure


def _differences(axes: Any, result: Result, side: str, other: str) -> None:
    """Draws paired differences of test results, one dot per seed, with mean and bound."""
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
    axes.set_xticks(range(len(shown)), list(shown), rotation=30, ha="right", fontsize=8)
    axes.set_title(f"{SIDE_NAMES[side]}\nminus {SIDE_NAMES[other]}", fontsize=9)
    axes.set_ylabel("points")
