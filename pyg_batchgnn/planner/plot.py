"""A plan as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pyg_batchgnn.planner.report import describe

if TYPE_CHECKING:
    from pyg_batchgnn.planner.report import Plan

#: Settings that are drawn.
_BARS = 14


def plot_plan(plan: Plan, path: Path) -> None:
    """Seconds by phase of the fastest settings, and how rows fetched shrink with F."""
    figure = Figure(figsize=(13, 5.5), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=[1.5, 1])
    shown = plan.predictions[:_BARS][::-1]
    names, start = [describe(one.setting) for one in shown], [0.0] * len(shown)
    for phase in shown[0].seconds if shown else ():
        seconds = [one.seconds[phase] for one in shown]
        left.barh(names, seconds, left=start, label=phase)
        start = [begin + more for begin, more in zip(start, seconds, strict=True)]
    left.set_xlabel("seconds of an epoch")
    left.legend(fontsize=8, loc="lower right")
    left.tick_params(axis="y", labelsize=7)
    for policy, probe in plan.probes.items():
        most = max(plan.workload.minibatches(probe.seeds), 1)
        sizes = sorted({max(1, round(most ** (step / 24))) for step in range(25)})
        rows = [probe.full.remote.distinct(size) / size for size in sizes]
        right.plot(sizes, rows, marker=".", label=policy)
    right.set_xscale("log")
    right.set_yscale("log")
    right.set_xlabel("minibatches fetched together")
    right.set_ylabel("remote rows fetched a minibatch")
    right.grid(True, which="both", alpha=0.3)
    right.legend()
    figure.suptitle(f"{plan.workload.name} on {plan.ranks} ranks")
    figure.savefig(path, dpi=110)
