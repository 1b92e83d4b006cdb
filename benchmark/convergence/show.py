"""The table and the picture of the time to accuracy."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt

from benchmark.support.plots import OURS_COLOUR, PEER_COLOUR
from benchmark.support.tables import Result
from benchmark.support.tables import table as markdown


def table(result: Result) -> str:
    """Returns the seconds in which each side came within half a point of the best of both."""
    rows = []
    for dataset, found in result["datasets"].items():
        native, pyg = (found["sides"][side] for side in ("native", "pyg"))
        both = native["seconds"] and pyg["seconds"]
        rows.append(
            [
                dataset,
                str(found["seeds"]),
                f"{found['target']:.2f}",
                *(f"{side['seconds']:.2f}" if side["seconds"] else "-" for side in (native, pyg)),
                f"{pyg['seconds'] / native['seconds']:.1f}x" if both else "-",
                *(f"{side['reached']}" for side in (native, pyg)),
                *(f"{side['test']:.2f}" for side in (native, pyg)),
            ]
        )
    header = ["", "seeds", "validation %", "native, s", "PyG's layers, s", "times as fast"]
    header += ["runs that got there", "PyG's", "test %, native", "PyG's"]
    return markdown(header, rows)


def plot(result: Result) -> Any:
    """Draws the median validation accuracy against seconds, one panel per data set."""
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
