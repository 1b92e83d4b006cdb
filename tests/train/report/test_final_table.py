"""The table of results has the metrics of the task, and no empty column."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console

from pyg_batchgnn.train.progress import Phase
from pyg_batchgnn.train.report import final_table
from pyg_batchgnn.train.run_folder import RunResult

from ..run_folder.test_epoch_records import record


def result(ranks: int, test: dict[str, float] | None) -> RunResult:
    phases = {phase.value: 1.0 for phase in Phase}
    ranges = {name: [0.5, 1.5] for name in phases} if ranks > 1 else {}
    return RunResult("roc_auc", 3, {"loss": 0.5, "roc_auc": 0.9}, test, 12.0, phases, ranks, ranges)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("test", [None, {"loss": 0.4, "micro_f1": 0.7, "roc_auc": 0.8125}])
def test_no_column_is_empty(ranks: int, test: dict[str, float] | None) -> None:
    table = final_table(result(ranks, test), [record(1)])
    assert len(table.columns) == (4 if ranks > 1 else 3)
    for column in table.columns:
        assert str(column.header) and any(column.cells)


def test_metrics_stand_in_it() -> None:
    out = io.StringIO()
    scores = {"loss": 0.4, "micro_f1": 0.7, "roc_auc": 0.8125}
    Console(file=out, width=100).print(final_table(result(1, scores), [record(1)]))
    rows = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert any("test ROC-AUC" in row and "0.8125" in row for row in rows)
    assert any("test micro F1" in row and "0.7000" in row for row in rows)
    assert any("validation ROC-AUC (best, epoch 3)" in row and "0.9000" in row for row in rows)


def test_historical_embeddings_have_rows_of_their_own() -> None:
    out = io.StringIO()
    figures = {
        "hit_rates": [0.9, 0.25],
        "edges_left_out": [0.05, 0.125],
        "features_fetched": 678,
        "feature_bytes": 2_300_000,
        "rows_pushed": 12345,
        "bytes_pushed": 4_500_000,
        "exchange_seconds": 1.5,
        "waited_seconds": 0.25,
    }
    found = dataclasses.replace(result(2, None), historical=figures)
    Console(file=out, width=110).print(final_table(found, [record(1)]))
    rows = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    for wanted in (
        "found, layer 2 | 25.0%",
        "left out, layer 1 | 5.0%",
        "678 | 2.3 MB",
        "12,345 | 4.5 MB",
        "0.25 s",
    ):
        assert any(wanted in row.replace("\u2502", "|") for row in rows), wanted
