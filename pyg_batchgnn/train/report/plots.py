"""The plots of a run: loss and metrics by epoch and over time, and time per phase."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pyg_batchgnn.train.config import Metric
from pyg_batchgnn.train.measure import PHASE_LABELS, Phase
from pyg_batchgnn.train.run_folder import EpochRecord, replacing
from pyg_batchgnn.train.task import Task

#: With more epochs than this, curves have no markers.
_MARKED = 60
_TRAINING, _VALIDATION, _BEST = "training minibatches", "validation", "best epoch"


@dataclass(frozen=True)
class _Abscissa:
    """The horizontal axis of a row of panels."""

    label: str
    of: Callable[[EpochRecord], float]
    is_count: bool


_ROWS = (
    _Abscissa("epoch", lambda record: record.epoch, is_count=True),
    _Abscissa("wall time since the start (s)", lambda record: record.elapsed_seconds, is_count=False),
)


def plot_learning(
    records: Sequence[EpochRecord], task: Task, title: str, best_epoch: int, path: Path
) -> None:
    """Plots the loss and the metrics of the task, by epoch above and over wall time below.

    Each epoch is a point, and the best epoch is marked. The legend lies below the panels.
    """
    shown = list(dict.fromkeys([task.train_metric, task.metric]))
    panels = [("loss", "Loss", task.loss_label), *((m.value, *_metric_labels(m)) for m in shown)]
    figure = _figure(1.6 + 4.2 * len(panels), 7.4)
    grid = figure.subplots(len(_ROWS), len(panels), squeeze=False)
    for row, abscissa in zip(grid, _ROWS, strict=True):
        for axes, (name, heading, unit) in zip(row, panels, strict=True):
            _plot_curves(axes, records, name, abscissa, best_epoch)
            axes.set_title(heading if abscissa is _ROWS[0] else "")
            axes.set_ylabel(unit)
    handles = {label: handle for axes in grid.flat for handle, label in zip(*_legend_of(axes), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, fontsize=9)
    figure.suptitle(title)
    _save(figure, path)


def plot_phases(phases: Mapping[str, float], title: str, path: Path) -> None:
    """Plots one bar per phase, in seconds, with its share of the sum."""
    shown = [phase for phase in Phase if phases.get(phase.value, 0.0) > 0.0]
    seconds = [phases[phase.value] for phase in shown]
    total = sum(seconds) or 1.0
    figure = _figure(8, 1.4 + 0.42 * max(3, len(shown)))
    axes = figure.subplots()
    bars = axes.barh([PHASE_LABELS[phase] for phase in shown], seconds, color="tab:blue")
    axes.bar_label(bars, [f"{value:.2f} s ({value / total:.0%})" for value in seconds], padding=4, fontsize=9)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.25 * max(seconds, default=1.0))
    axes.set_xlabel("wall time (s)")
    axes.set_title(title)
    axes.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def _plot_curves(
    axes: Axes, records: Sequence[EpochRecord], name: str, abscissa: _Abscissa, best_epoch: int
) -> None:
    """Plots one figure of the records: of training minibatches and of validation nodes."""
    marker = "o" if len(records) <= _MARKED else None
    sources = (
        (_TRAINING, "tab:blue", [(record, record.train) for record in records]),
        (_VALIDATION, "tab:orange", [(r, r.val) for r in records if r.val is not None]),
    )
    for label, color, found in sources:
        points = [(abscissa.of(record), values[name]) for record, values in found if name in values]
        if points:
            axes.plot(*zip(*points, strict=True), marker=marker, markersize=4, label=label, color=color)
    for record in records:
        if record.epoch == best_epoch and record.val is not None:
            x = abscissa.of(record)
            axes.axvline(x, color="0.5", linestyle="--", linewidth=1, label=f"{_BEST} ({best_epoch})")
    axes.set_xlabel(abscissa.label)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=abscissa.is_count, min_n_ticks=1))
    if abscissa.is_count:
        axes.set_xlim(0.5, max(record.epoch for record in records) + 0.5)
    else:
        axes.set_xlim(left=0)
    axes.grid(alpha=0.3)


def _metric_labels(metric: Metric) -> tuple[str, str]:
    """Returns the heading of a metric's panel and the label of its vertical axis."""
    heading = metric.label[0].upper() + metric.label[1:]
    unit = {Metric.ACCURACY: "share of nodes classified right"}.get(metric)
    return heading, unit or f"{metric.label}{', in units of the values' if metric.is_error else ' (0 to 1)'}"


def _legend_of(axes: Axes) -> tuple[list[Artist], list[str]]:
    handles, labels = axes.get_legend_handles_labels()
    return handles, labels


def _figure(width: float, height: float) -> Figure:
    """Makes a figure that needs no display and no global state. Sizes are in inches."""
    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Figure, path: Path) -> None:
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")
