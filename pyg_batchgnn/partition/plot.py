"""A picture of the quality of a partition."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyg_batchgnn.partition.report import PartitionReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The most parts whose numbers are written beside the axes.
_NUMBERED = 32


def plot_partition(report: PartitionReport, path: Path) -> None:
    """Draws the balance of each load, the cut of each part, and the halo by pair of parts.

    Args:
        report: the counts of all parts.
        path: of the file to write.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # slow to import
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4), layout="constrained")
    FigureCanvasAgg(figure)
    balance, cut, halo = figure.subplots(1, 3)
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
    loads = ("nodes", "edges", "train", "halo")
    for number, load in enumerate(loads):
        counts = [getattr(part, load) for part in report.parts]
        mean = sum(counts) / len(counts)
        axes.plot([number] * len(counts), [count / mean if mean else 1.0 for count in counts], "o", alpha=0.5)
    axes.axhline(1.0, color="grey", linewidth=1)
    axes.set_xticks(range(len(loads)), loads)
    axes.set(ylabel="over the mean", title="balance, one point per part")


def _draw_cut(axes: Axes, report: PartitionReport) -> None:
    shares = [part.cut / part.edges if part.edges else 0.0 for part in report.parts]
    axes.bar(range(len(shares)), shares)
    axes.set(xlabel="part", ylabel="share of its in-edges", title="cut", ylim=(0, None))
