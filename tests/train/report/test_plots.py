"""Plots are written whole, also for a run of one epoch or without validation."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import pytest

from pyg_batchgnn.train.config import Metric
from pyg_batchgnn.train.measure import Phase
from pyg_batchgnn.train.report import plot_learning, plot_phases
from pyg_batchgnn.train.run_folder import EpochRecord
from pyg_batchgnn.train.task import ClassTask

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
