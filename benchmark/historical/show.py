"""The tables and the picture of test accuracies with historical embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt

from benchmark.historical.measure import PAPER, VARIED
from benchmark.support.plots import OURS_COLOUR, PEER_COLOUR
from benchmark.support.tables import Result
from benchmark.support.tables import table as markdown


def table(result: Result) -> str:
    """Returns mean test accuracies and paired differences, with hit rates and megabytes."""
    lines = [
        [
            f"{dataset}, {one['ranks']} ranks, {one['variant']}",
            f"{one['mean']:.2f}",
            f"{found['alone']:.2f}",
            f"{one['mean_difference']:+.2f}",
            _percent(one.get("hit_rates", [])),
            _percent(one.get("edges_left_out", [])),
            f"{one['megabytes']:.1f}" if "megabytes" in one else "",
        ]
        for dataset, found in result["datasets"].items()
        for one in found["variants"]
    ]
    header = ["", "%", "one process, %", "difference", "hits by layer, %", "edges left out, %", "MB pushed"]
    return markdown(header, lines)


def plot(result: Result) -> Any:
    """Draws the accuracy against each setting, the others being the paper's."""
    figure, panels = plt.subplots(1, len(VARIED), figsize=(9, 3), sharey=True)
    for axes, (name, values) in zip(panels, VARIED.items(), strict=True):
        for dataset, found in result["datasets"].items():
            by_variant = {one["variant"]: one for one in found["variants"] if one["ranks"] == 2}
            points = [
                by_variant.get("paper" if value == PAPER[name] else f"{name}={value}") for value in values
            ]
            known = [at for at, one in enumerate(points) if one is not None]
            axes.plot(known, [one["mean_difference"] for one in points if one], marker="o", label=dataset)
        axes.axhline(0, color="black", linewidth=0.5)
        axes.axhline(-1, color=PEER_COLOUR, linewidth=0.5, linestyle="--")
        axes.set_xticks(range(len(values)), [str(value) for value in values], fontsize=8)
        axes.set_xlabel(name)
    panels[0].set_ylabel("points against one process", color=OURS_COLOUR)
    panels[-1].legend(fontsize=7)
    return figure


def _percent(shares: Sequence[float]) -> str:
    return " / ".join(f"{100 * share:.1f}" for share in shares)
