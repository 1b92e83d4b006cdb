"""Plots are written whole, also for a run of one epoch or without validation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import matplotlib
import pytest

from pyg_batchgnn.train.config import Metric
from pyg_batchgnn.train.node_tasks import ClassTask, LabelTask
from pyg_batchgnn.train.progress import Phase
from pyg_batchgnn.train.report import plot_learning, plot_phases
from pyg_batchgnn.train.run_folder import EpochRecord
from pyg_batchgnn.train.tasks import NodeTask
from tests.support.drawn_figures import figures_drawn

from ..run_folder.test_epoch_records import record

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(
    "records",
    [[record(1)], [record(1), record(2)], [record(1, None)], [record(e) for e in range(1, 100)]],
    ids=["one", "two", "unevaluated", "many"],
)
def test_learning(records: list[EpochRecord], tmp_path: Path) -> None:
    task = ClassTask(4, Metric.ACCURACY)
    backend = matplotlib.get_backend()
    plot_learning(records, task, "title", 1, tmp_path / "learning.png")
    assert (tmp_path / "learning.png").read_bytes().startswith(PNG)
    assert [path.name for path in tmp_path.iterdir()] == ["learning.png"]
    assert matplotlib.get_backend() == backend


@pytest.mark.parametrize("phases", [{phase.value: 1.0 for phase in Phase}, {"forward": 0.1}, {}])
def test_phases(phases: dict[str, float], tmp_path: Path) -> None:
    plot_phases(phases, "title", tmp_path / "phases.png")
    assert (tmp_path / "phases.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize("task", [ClassTask(4, Metric.ACCURACY), LabelTask(3, Metric.ROC_AUC)])
def test_curves_by_epoch_and_over_time(
    task: NodeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The legend is the figure's and lies below its panels, so it covers no curve."""
    drawn = figures_drawn(monkeypatch)
    train = {"loss": 0.5, task.train_metric.value: 0.6}
    val = {"loss": 0.6, **{metric.value: 0.5 for metric in task.metrics}}
    records = [replace(record(epoch), train=train, val=val) for epoch in (1, 2)]
    plot_learning(records, task, "title", 2, tmp_path / "learning.png")
    (figure,) = drawn
    panels = 2 if task.train_metric is task.metric else 3
    labels = [axes.get_xlabel() for axes in figure.axes]
    assert labels == ["epoch"] * panels + ["wall time since the start (s)"] * panels
    assert [axes.get_legend() for axes in figure.axes] == [None] * (2 * panels)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.texts] == [
        "training minibatches",
        "validation",
        "best epoch (2)",
    ]
    below = min(axes.get_window_extent().y0 for axes in figure.axes)
    assert legend.get_window_extent().y1 < below
