"""Files of a run folder are replaced whole or not at all."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from pyg_batchgnn.train.run_folder import replacing


def test_a_full_disk_is_named_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_text("the one before")
    with (
        pytest.raises(OSError, match=r"No space left on device: '.*checkpoint'"),
        replacing(path) as temporary,
    ):
        temporary.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert path.read_text() == "the one before"
    assert list(tmp_path.iterdir()) == [path]
