"""The lines, the table and the plots of a run."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from rich.console import Console

from pyg_batchgnn.train.checkpoint import Phase
from pyg_batchgnn.train.config.choices import Metric, TaskLoss
from pyg_batchgnn.train.link_tasks import LinkTask
from pyg_batchgnn.train.node_tasks import ClassTask, LabelTask, ValueTask
from pyg_batchgnn.train.report import TerminalReport, final_table, plot_learning, plot_phases
from pyg_batchgnn.train.run_folder import EpochRecord, RunResult
from tests.support.tiers import in_all
from tests.train.test_run_folder import record


def result(ranks: int, test: dict[str, float] | None) -> RunResult:
    phases = {phase.value: 1.0 for phase in Phase}
    ranges = {name: [0.5, 1.5] for name in phases} if ranks > 1 else {}
    return RunResult("roc_auc", 3, {"loss": 0.5, "roc_auc": 0.9}, test, 12.0, phases, ranks, ranges)


SCORES = {"loss": 0.4, "micro_f1": 0.7, "roc_auc": 0.8125}


def rows_of(found: RunResult, records: list[EpochRecord]) -> list[str]:
    """Returns the rows of the table of results, without lines and with one space between words."""
    out = io.StringIO()
    Console(file=out, width=110).print(final_table(found, records))
    return [" ".join(line.split()) for line in out.getvalue().replace("\u2502", "").splitlines()]


def test_metrics_and_historical_embeddings_stand_in_it() -> None:
    figures = {"hit_rates": [0.9, 0.25], "edges_left_out": [0.05, 0.125], "features_fetched": 678}
    figures |= {"feature_bytes": 2_300_000, "rows_pushed": 12345, "bytes_pushed": 4_500_000}
    figures |= {"exchange_seconds": 1.5, "waited_seconds": 0.25}
    rows = rows_of(replace(result(2, SCORES), historical=figures), [record(1)])
    for wanted in (
        *("test ROC-AUC 0.8125", "test micro F1 0.7000", "validation ROC-AUC (best, epoch 3) 0.9000"),
        *("halo rows found, layer 2 25.0%", "edges left out, layer 1 5.0%", "waited for pushed rows 0.25 s"),
        *("features fetched once 678 2.3 MB", "rows pushed 12,345 4.5 MB"),
    ):
        assert wanted in rows


def test_the_bar_says_what_an_epoch_waits_for() -> None:
    ahead, out = [40], io.StringIO()
    console = Console(file=out, force_terminal=True, width=120)
    shown = []
    with TerminalReport(console, 3, ClassTask(4, Metric.ACCURACY), lambda: ahead[0]) as report:
        report.epoch_begins(2, 5, 15)
        for count in (40, 43, 50):
            ahead[0] = count
            report._bar.refresh()
            shown.append(out.getvalue())
            out.seek(0)
            out.truncate()
        report.step_done(0.5)
        report._bar.refresh()
        shown.append(out.getvalue())
    assert "5/15" in shown[0] and "ahead" not in shown[0]
    assert "looking ahead 3/10" in shown[1] and "reading the first rows" in shown[2]
    assert "6/15" in shown[3] and shown[3].rindex("6/15") > shown[3].rfind("reading the first rows")


PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("records", [[record(1, None)], *in_all([record(e) for e in range(1, 100)])], ids=len)
def test_learning(records: list[EpochRecord], tmp_path: Path) -> None:
    task = ClassTask(4, Metric.ACCURACY)
    backend = matplotlib.get_backend()
    plot_learning(records, task, "title", 1, tmp_path / "learning.png")
    assert (tmp_path / "learning.png").read_bytes().startswith(PNG)
    assert [path.name for path in tmp_path.iterdir()] == ["learning.png"]
    assert matplotlib.get_backend() == backend
    for phases in ({phase.value: 1.0 for phase in Phase}, {"forward": 0.1}, {}):
        plot_phases(phases, "title", tmp_path / "phases.png")
        assert (tmp_path / "phases.png").read_bytes().startswith(PNG)


def tasks() -> dict[str, Any]:
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
    train = {"loss": 12.34567, task.train_metric.value: 0.98765}
    val = {"loss": 1.5, task.metric.value: 0.12345}
    record = EpochRecord(100, train, val, 1234.5, 2e4, minibatches=3, nodes=5, edges=7, phases={})
    console = Console(file=io.StringIO(), width=80)
    TerminalReport(console, 100, task, lambda: 0).epoch_done(record, is_best=True)
    TerminalReport(console, 100, task, lambda: 0).epoch_done(record, is_best=False)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    best, other = printed.splitlines()
    assert best == f"{other}  best" and len(best) <= 80
    assert best.startswith("epoch 100/100  loss 12.3457  ") and "0.1235  1234 s" in best
    if task.metric is task.train_metric:
        assert f"  train 0.9877  val {task.metric.label} 0.1235" in best, "the name is said once"
