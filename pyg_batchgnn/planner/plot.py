"""A picture of the predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pyg_batchgnn.planner.setting import Prediction
from pyg_batchgnn.planner.wording import describe
from pyg_batchgnn.planner.workload import PlannerProbe, Workload

#: The most settings that are drawn.
_BARS = 14


def plot_predictions(
    predictions: Sequence[Prediction],
    probes: Mapping[str, PlannerProbe],
    workload: Workload,
    title: str,
    path: Path,
) -> None:
    """Draws the seconds by phase of the first settings, and how the rows that are fetched shrink
    with F.

    Args:
        predictions: the fastest first.
        probes: what was found out about minibatches, by policy.
        workload: what is trained.
        title: of the picture.
        path: of the file to write.
    """
    figure = Figure(figsize=(13, 5.5), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=[1.5, 1])
    _draw_seconds(left, predictions[:_BARS][::-1])
    _draw_rows(right, probes, workload)
    figure.suptitle(title)
    figure.savefig(path, dpi=110)


def _draw_seconds(axes: Axes, shown: Sequence[Prediction]) -> None:
    names, start = [describe(one.setting) for one in shown], [0.0] * len(shown)
    for phase in shown[0].seconds if shown else ():
        seconds = [one.seconds[phase] for one in shown]
        axes.barh(names, seconds, left=start, label=phase)
        start = [begin + more for begin, more in zip(start, seconds, strict=True)]
    axes.set_xlabel("seconds per epoch")
    axes.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, frameon=False)
    axes.tick_params(axis="y", labelsize=7)


def _draw_rows(axes: Axes, probes: Mapping[str, PlannerProbe], workload: Workload) -> None:
    for policy, probe in probes.items():
        most = max(workload.minibatches(probe.seeds), 1)
        sizes = sorted({max(1, round(most ** (step / 24))) for step in range(25)})
        rows = [probe.full.remote.distinct(size) / size for size in sizes]
        axes.plot(sizes, rows, marker=".", label=policy)
    if _spans_a_decade(axes.dataLim.intervalx):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if _spans_a_decade(axes.dataLim.intervaly):
        axes.set_yscale("log")
    axes.set_xlabel("minibatches fetched together")
    axes.set_ylabel("remote rows fetched per minibatch")
    axes.grid(True, which="both", alpha=0.3)
    axes.legend()


def _spans_a_decade(values: Sequence[float]) -> bool:
    """Returns whether positive values differ so much that an axis of decades shows them best."""
    return min(values) > 0 and max(values) >= 10 * min(values)
