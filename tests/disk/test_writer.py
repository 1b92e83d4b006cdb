"""Writing tables in order: whole files or none."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from pyg_batchgnn.disk import DiskReader, DiskTable, DiskWriter, writer
from tests.support.page_cache import empty_page_cache, resident


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("is_direct", [True, False])
@pytest.mark.parametrize(
    ("rows", "shape", "dtype"),
    [
        (0, (4,), torch.float32),
        (1, (), torch.int8),
        (1000, (3, 5), torch.float64),
        (100_003, (37,), torch.float32),  # more than a stage
        (1001, (7,), torch.bfloat16),
        (30, (0,), torch.float32),
    ],
)
def test_what_is_written_is_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: int,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    is_direct: bool,
) -> None:
    if not is_direct:
        monkeypatch.setattr(writer.os, "O_DIRECT", 0)
    values = torch.randn(rows, *shape, dtype=torch.float64).mul(50).to(dtype)
    with DiskWriter(tmp_path / "x.npy", rows, shape, dtype) as file:
        for piece in values.split(max(1, rows // 3)):
            file.write(piece)
        assert file.written == rows
        assert not (tmp_path / "x.npy").exists()
    stored = np.load(tmp_path / "x.npy")
    assert torch.equal(torch.from_numpy(stored).view(dtype).view(rows, *shape), values)
    assert names(tmp_path) == ["x.npy"]
    if values.numel():
        mapped = np.load(tmp_path / "x.npy", mmap_mode="c")
        assert DiskTable.of(torch.from_numpy(mapped).view(dtype)) == file.table
        out = torch.empty_like(values)
        DiskReader(file.table).read_range(0, rows, out)
        assert torch.equal(out, values)


@pytest.mark.parametrize("is_direct", [True, False])
def test_what_is_written_is_not_in_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_direct: bool
) -> None:
    (tmp_path / "other").write_bytes(bytes(10_000))
    empty_page_cache(str(tmp_path / "other"))
    if any(resident(str(tmp_path / "other"))):
        pytest.skip("the file system lies in memory")
    if not is_direct:
        monkeypatch.setattr(writer.os, "O_DIRECT", 0)
    with DiskWriter(tmp_path / "x.npy", 3_000_001, (), torch.float32) as file:
        file.write(torch.zeros(3_000_001))
    assert not any(resident(str(tmp_path / "x.npy")))


def test_nothing_is_left_after_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_text("before")
    with pytest.raises(ZeroDivisionError), DiskWriter(tmp_path / "x.npy", 5, (2,), torch.float32) as file:
        file.write(torch.zeros(2, 2))
        raise ZeroDivisionError
    file = DiskWriter(tmp_path / "x.npy", 5, (2,), torch.float32)
    file.write(torch.zeros(2, 2))
    with pytest.raises(ValueError, match="2 of 5 rows were written"):
        file.close()
    assert names(tmp_path) == ["x.npy"] and (tmp_path / "x.npy").read_text() == "before"
    with pytest.raises(ValueError, match="closed"):
        file.write(torch.zeros(1, 2))


def test_a_full_disk_says_what_is_missing(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    free = disk.f_bavail * disk.f_frsize
    with pytest.raises(OSError, match=r"takes \d+ bytes, \d+ bytes are missing.*x\.npy") as raised:
        DiskWriter(tmp_path / "x.npy", 2 * free >> 10, (1024,), torch.uint8)
    assert raised.value.errno == errno.ENOSPC
    missing = int(raised.value.strerror.split(", ")[1].split()[0])
    assert free // 2 < missing < 2 * free
    assert not names(tmp_path)


def test_a_disk_that_gets_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    file = DiskWriter(tmp_path / "x.npy", 5, (2,), torch.float32)
    file.write(torch.zeros(5, 2))
    monkeypatch.setattr(writer.os, "pwrite", refuse)
    with pytest.raises(OSError, match=r"bytes are missing.*x\.npy"):
        file.close()
    assert not names(tmp_path)


def test_bad_rows(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 0 rows"):
        DiskWriter(tmp_path / "x.npy", -1, (2,), torch.float32)
    with pytest.raises(FileNotFoundError):
        DiskWriter(tmp_path / "none" / "x.npy", 1, (2,), torch.float32)
    file = DiskWriter(tmp_path / "x.npy", 2, (2,), torch.float32)
    for rows in (torch.zeros(1, 3), torch.zeros(1, 2, dtype=torch.float64)):
        with pytest.raises(ValueError, match=r"the file has torch\.float32"):
            file.write(rows)
    with pytest.raises(ValueError, match="row 3 comes to a file of 2 rows"):
        file.write(torch.zeros(3, 2))
    file.abandon()
    assert not names(tmp_path)
