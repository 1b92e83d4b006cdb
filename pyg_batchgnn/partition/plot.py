"""A picture of the quality of a partition."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyg_batchgnn.partition.loads import Load
from pyg_batchgnn.partition.report import PartitionReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The most parts whose numbers are written beside the axes.
_NUMBERED = 32
#: The most loads whose names stand level, and the inches of each.
_LEVEL, _TICK = 6, 0.45


def plot_partition(report: PartitionReport, path: Path) -> None:
    """Draws the balance of each load, the cut of each part, and the halo by pair of parts.

    Args:
        report: the counts of all parts.
        path: of the file to write.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # slow to import
    from matplotlib.figure import Figure

    wide = max(4.5, _TICK * len(report.loads))
    figure = Figure(figsize=(8.5 + wide, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    balance, cut, halo = figure.subplots(1, 3, width_ratios=(wide, 3.8, 4.2))
    _draw_balance(balance, report)
    _draw_cut(cut, report)
    shown = halo.imshow(report.halo_pairs, cmap="Blues")
    figure.colorbar(shown, ax=halo, label="halo nodes")
    halo.set(xlabel="part that owns them", ylabel="part that needs them", title="halo by pair of parts")
    if len(report.parts) <= _NUMBERED:
        halo.set_xticks(range(len(report.parts)))
        halo.set_yticks(range(len(report.parts)))
    title = f"{len(report.parts)} parts, {report.edge_cut:.1%} of the edges cut"
    if len(set(report.hosts)) > 1:
        title += f", {report.host_cut:.1%} between hosts"
    figure.suptitle(title)
    figure.savefig(path, dpi=110)


def _draw_balance(axes: Axes, report: PartitionReport) -> None:
    halo = Load("halo", "", tuple(part.halo for part in report.parts), 1)
    loads, several = (*report.loads, halo), len(report.types) > 1
    for number, load in enumerate(loads):
        shares = [one / load.mean if load.mean else 1.0 for one in load.sums]
        axes.plot([number] * len(shares), shares, "o", alpha=0.5, color="C0" if load.is_met else "C3")
        if load.slack is not None:
            axes.plot([number - 0.35, number + 0.35], [load.slack] * 2, color="black", linewidth=1.2)
    axes.axhline(1.0, color="grey", linewidth=1)
    names = [f"{load.name}, {load.node_type}" if several and load.node_type else load.name for load in loads]
    upright = len(loads) > _LEVEL
    axes.set_xticks(
        range(len(loads)), names, rotation=60 if upright else 0, ha="right" if upright else "center"
    )
    title = "balance, one point per part"
    limits = any(load.slack is not None for load in loads)
    axes.set(ylabel="over the mean", title=f"{title}; black: allowed" if limits else title)


def _draw_cut(axes: Axes, report: PartitionReport) -> None:
    shares = [part.cut / part.edges if part.edges else 0.0 for part in report.parts]
    axes.bar(range(len(shares)), shares)
    axes.set(xlabel="part", ylabel="share of its in-edges", title="cut", ylim=(0, None))
