"""The line of an epoch on the terminal: one line of 80 columns, whatever the task."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from pyg_batchgnn.train.config import Metric, TaskLoss
from pyg_batchgnn.train.link_tasks import LinkTask
from pyg_batchgnn.train.node_tasks import ClassTask, LabelTask, ValueTask
from pyg_batchgnn.train.report import TerminalReport
from pyg_batchgnn.train.run_folder import EpochRecord


def tasks() -> dict[str, Any]:
    """The tasks with each of their metrics."""
    found: dict[str, Any] = {}
    for metric in Metric:
        made: list[Any] = [ClassTask(4, metric), LabelTask(4, metric)]
        made += [ValueTask((), metric, TaskLoss.MSE), LinkTask(8, metric, TaskLoss.BCE)]
        found |= {f"{type(one).__name__} {metric.value}": one for one in made if metric in one.metrics}
    return found


TASKS = tasks()


@pytest.mark.parametrize("name", TASKS)
def test_an_epoch_takes_one_line(name: str) -> None:
    task = TASKS[name]
    record = EpochRecord(
        epoch=100,
        train={"loss": 12.34567, task.train_metric.value: 0.98765},
        val={"loss": 1.5, task.metric.value: 0.12345},
        seconds=1234.5,
        elapsed_seconds=2e4,
        minibatches=3,
        nodes=5,
        edges=7,
        phases={},
    )
    console = Console(file=io.StringIO(), width=80)
    TerminalReport(console, 100, task).epoch_done(record, is_best=True)
    TerminalReport(console, 100, task).epoch_done(record, is_best=False)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    best, other = printed.splitlines()
    assert best == f"{other}  best" and len(best) <= 80
    assert best.startswith("epoch 100/100  loss 12.3457  ") and "0.1235  1234 s" in best
    if task.metric is task.train_metric:
        assert f"  train 0.9877  val {task.metric.label} 0.1235" in best, "the name is said once"
