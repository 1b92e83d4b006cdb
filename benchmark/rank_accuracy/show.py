"""The table and the picture of test accuracies on several ranks."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt

from benchmark.support.plots import OURS_COLOUR, PEER_COLOUR
from benchmark.support.tables import Result
from benchmark.support.tables import table as markdown


def table(result: Result) -> str:
    """Returns mean test accuracies on one and more ranks, and paired differences with bounds."""
    lines = [
        [
            f"{dataset}, {figures['ranks']} ranks",
            str(found["seeds"]),
            f"{found['mean'][str(figures['ranks'])]:.2f}",
            f"{found['mean']['1']:.2f}",
            f"{figures['mean_difference']:+.2f}",
            f"{figures['lower_95']:+.2f}",
        ]
        for dataset, found in result["datasets"].items()
        for figures in found["pairs"]
    ]
    header = ["", "seeds", "%", "one process, %", "mean difference", "lower 95 % bound"]
    return markdown(header, lines)


def plot(result: Result) -> Any:
    """Draws the mean paired difference to one process with its lower bound, one mark per row."""
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
