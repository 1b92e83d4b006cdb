"""The plots of a run: loss and accuracy over time, and time per phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pyg_batchgnn.train.measure import PHASE_LABELS, Phase
from pyg_batchgnn.train.run_folder import EpochRecord, replacing


def plot_learning(records: Sequence[EpochRecord], title: str, best_epoch: int, path: Path) -> None:
    """Plots loss and accuracies over wall time, with one point per epoch and the best epoch
    marked."""
    figure = _figure(11, 4.2)
    left, right = figure.subplots(1, 2)
    seconds = [record.elapsed_seconds for record in records]
    marker = "o" if len(records) <= 60 else None

    left.plot(seconds, [record.loss for record in records], marker=marker, markersize=4, color="tab:red")
    _label(left, "Training loss", "cross entropy (nats per node)")

    train = [record.train_accuracy for record in records]
    right.plot(seconds, train, marker=marker, markersize=4, label="training minibatches", color="tab:blue")
    evaluated = [(r.elapsed_seconds, r.val_accuracy) for r in records if r.val_accuracy is not None]
    if evaluated:
        times, accuracies = zip(*evaluated, strict=True)
        right.plot(times, accuracies, marker=marker, markersize=4, label="validation", color="tab:orange")
    best = [r for r in records if r.epoch == best_epoch and r.val_accuracy is not None]
    for record in best:
        text = f"best validation {record.val_accuracy:.4f}, epoch {record.epoch}"
        right.axvline(record.elapsed_seconds, color="0.5", linestyle="--", linewidth=1, label=text)
    _label(right, "Accuracy", "share of nodes classified right")
    right.legend(loc="lower right", fontsize=9)
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


def _label(axes: Axes, title: str, y: str) -> None:
    axes.set_title(title)
    axes.set_xlabel("wall time since the start (s)")
    axes.set_ylabel(y)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)


def _figure(width: float, height: float) -> Figure:
    """Makes a figure that needs no display and no global state. Sizes are in inches."""
    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Figure, path: Path) -> None:
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")
