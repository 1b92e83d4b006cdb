"""The lines of metrics.jsonl."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.run_folder import EpochRecord, append_record, keep_epochs, read_records


def record(epoch: int, val_accuracy: float | None = 0.5) -> EpochRecord:
    val = None if val_accuracy is None else {"loss": 0.4, "accuracy": val_accuracy}
    train = {"loss": 1 / 3, "accuracy": 0.1}
    return EpochRecord(epoch, train, val, 2.0, 2.0 * epoch, 10, 1000, 5000, {"forward": 1.0})


def test_records_go_there_and_back(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert read_records(path) == []
    written = [record(1), record(2, None)]
    for one in written:
        append_record(path, one)
    assert read_records(path) == written
    assert path.read_text().count("\n") == 2


def test_epochs_that_will_be_repeated_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for epoch in (1, 2, 3):
        append_record(path, record(epoch))
    assert [kept.epoch for kept in keep_epochs(path, 2)] == [1, 2]
    assert [kept.epoch for kept in read_records(path)] == [1, 2]


def test_a_line_cut_off_by_a_crash_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    append_record(path, record(1))
    path.write_text(path.read_text() + '{"epoch": 2, "lo')
    assert [kept.epoch for kept in keep_epochs(path, 5)] == [1]
    append_record(path, record(2))
    assert [kept.epoch for kept in read_records(path)] == [1, 2]


@pytest.mark.parametrize("line", ["{", "3", '{"epoch": 1}'])
def test_a_foreign_line_is_an_error(line: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(TrainError, match="line 1 is not the record of an epoch"):
        read_records(path)
