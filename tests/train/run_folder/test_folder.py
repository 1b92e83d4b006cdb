"""Files of a run folder are replaced whole or not at all."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from pyg_batchgnn.data import DatasetError
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.run_folder import RunFolder, replacing


def test_a_full_disk_is_named_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_text("the one before")
    with (
        pytest.raises(DatasetError, match=r"checkpoint: cannot be written \(No space left on device\); free"),
        replacing(path) as temporary,
    ):
        temporary.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert path.read_text() == "the one before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_run_that_was_killed_before_it_had_written_anything_starts_anew(tmp_path: Path) -> None:
    (tmp_path / ".config.json.123.tmp").write_text("{")
    RunFolder(tmp_path).clear()
    assert list(tmp_path.iterdir()) == []
    RunFolder.create(tmp_path, "anything")


@pytest.mark.parametrize("names", [["notes.txt", ".config.json.1.tmp"], [".mine.tmp"]])
def test_a_folder_that_holds_something_else_is_left_alone(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).touch()
    RunFolder(tmp_path).clear()
    assert {path.name for path in tmp_path.iterdir()} == set(names)
    with pytest.raises(TrainError, match="is not empty; give another folder"):
        RunFolder.create(tmp_path, "anything")
