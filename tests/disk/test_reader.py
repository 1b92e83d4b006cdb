"""Readers of tables in files: values, counts, faults, and what is left of the page cache."""

from __future__ import annotations

import errno
import os
import threading
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from pyg_batchgnn.disk import DiskReader, DiskTable
from pyg_batchgnn.disk import reader as file
from pyg_batchgnn.disk.reader import SourceFile
from pyg_batchgnn.ops import ReadRows
from tests.support.limits import exit_code_of_child, join_all
from tests.support.mapped_data import empty_page_cache, resident

ROWS, WIDTH = 5000, 33


def a_table(folder: Path, dtype: torch.dtype = torch.float32, rows: int = ROWS) -> tuple[DiskTable, Tensor]:
    values = torch.arange(rows * WIDTH).view(rows, WIDTH).to(dtype)
    path = folder / "x.npy"
    path.write_bytes(b"h" * 128 + values.view(torch.uint8).numpy().tobytes())
    return DiskTable(str(path), 128, rows, (WIDTH,), dtype), values


@pytest.fixture(params=["direct", "plain"])
def table(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DiskTable:
    if request.param == "plain":
        monkeypatch.setattr(file, "_DIRECT", 0)
        warnings.simplefilter("ignore")
    return a_table(tmp_path)[0]


def values() -> Tensor:
    return torch.arange(ROWS * WIDTH, dtype=torch.float32).view(ROWS, WIDTH)


def test_rows_and_counts(table: DiskTable) -> None:
    reader = DiskReader(table)
    row, place = torch.arange(3, ROWS, 47), torch.arange(107).flip(0)
    out = torch.zeros(110, WIDTH)
    counted = reader.read(row, out, place)
    assert torch.equal(out[:107].flip(0), values()[row]) and not out[107:].any()
    assert (counted.rows, counted.useful) == (107, 107 * WIDTH * 4)
    assert (counted.bytes, counted.operations) == reader.predict(row)
    assert reader.bytes_per_second() > 0
    again = reader.read(row, torch.empty_like(out), gap=0)
    assert again.operations > counted.operations
    counted.add(again)
    assert counted.rows == 214
    reader.close()
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        reader.read(row, out)


def test_ranges(table: DiskTable) -> None:
    reader = DiskReader(table)
    out = torch.zeros(ROWS, WIDTH)
    counted = reader.read_range(10, 4000, out)
    assert torch.equal(out[:4000], values()[10:4010]) and not out[4000:].any()
    assert counted.rows == 4000 and counted.bytes < counted.useful + 2 * 4096
    assert reader.read_range(ROWS, 0, out).operations == 0
    for first, count in ((-1, 2), (ROWS - 1, 2), (0, -1)):
        with pytest.raises(IndexError, match="do not lie"):
            reader.read_range(first, count, out)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64, torch.bool])
def test_types(tmp_path: Path, dtype: torch.dtype) -> None:
    table, wanted = a_table(tmp_path, dtype, 50)
    out = torch.empty(50, WIDTH, dtype=dtype)
    DiskReader(table).read(torch.arange(50), out)
    assert torch.equal(out, wanted)
    with pytest.raises(ValueError, match="out has rows of"):
        DiskReader(table).read(torch.arange(50), torch.empty(50, WIDTH, dtype=torch.float16))


def test_many_threads_and_a_forked_child(table: DiskTable) -> None:
    reader, row = DiskReader(table), torch.arange(0, ROWS, 3)
    found = [torch.empty(len(row), WIDTH) for _ in range(4)]
    join = [threading.Thread(target=reader.read, args=(row, out)) for out in found]
    for thread in join:
        thread.start()
    join_all(join)
    assert all(torch.equal(out, values()[row]) for out in found)
    child = os.fork()
    if not child:
        out = torch.empty(len(row), WIDTH)
        reader.read(row, out)
        os._exit(0 if np.array_equal(out.numpy(), found[0].numpy()) else 1)
    assert exit_code_of_child(child) == 0


def test_other_threads_run_meanwhile(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(128 << 20))
    reader = DiskReader(DiskTable(str(tmp_path / "x"), 0, 128 << 10, (1024,), torch.uint8))
    thread = threading.Thread(
        target=reader.read_range, args=(0, 128 << 10, torch.empty(128 << 10, 1024).byte())
    )
    thread.start()
    turns = 0
    while thread.is_alive():
        turns += 1
    assert turns > 1000


def test_a_file_that_is_too_short(table: DiskTable) -> None:
    with pytest.raises(OSError, match=r"ends at byte 660260, but the file has 660128.*x\.npy"):
        DiskReader(replace(table, rows=ROWS + 1))
    with pytest.raises(FileNotFoundError, match="nothing"):
        DiskReader(replace(table, path=table.path + "nothing"))


def test_a_pipe_and_a_folder(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", ""):
        with pytest.raises(OSError, match=r"plain files|directory"):
            DiskReader(DiskTable(str(tmp_path / name), 0, 1, (1,), torch.uint8))


def test_a_file_that_changes_is_noticed(table: DiskTable) -> None:
    reader, row, out = DiskReader(table), torch.arange(ROWS), torch.empty(ROWS, WIDTH)
    path = Path(table.path)
    content = path.read_bytes()
    os.truncate(path, 70_000)
    with pytest.raises(OSError, match=r"cut or written to.*660128 bytes then, 70000 now.*x\.npy"):
        reader.read(row, out)
    path.write_bytes(content)
    with pytest.raises(OSError, match=r"cut or written to since it was opened: .*x\.npy"):
        reader.read(row, out)
    reader = DiskReader(table)
    reader.read(row, out)
    path.rename(path.with_name("other"))
    with pytest.raises(OSError, match=r"removed.*x\.npy"):
        reader.read(row, out)
    path.write_bytes(content)
    with pytest.raises(OSError, match=r"replaced.*x\.npy"):
        reader.read_range(0, 10, out)


def test_a_file_that_is_cut_while_it_is_read(table: DiskTable, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = DiskReader(table)
    monkeypatch.setattr(SourceFile, "_check_identity", lambda _: os.truncate(table.path, 70_000))
    with pytest.raises(OSError, match=r"ends before byte 70000; it was cut.*x\.npy") as raised:
        reader.read(torch.arange(ROWS), torch.empty(ROWS, WIDTH))
    assert raised.value.errno == errno.EIO and raised.value.filename == table.path


def test_a_disk_that_fails(table: DiskTable, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = DiskReader(table)
    monkeypatch.setattr(file, "read_rows", lambda *_: ReadRows(512, 1, errno.EIO, False, 8192))
    with pytest.raises(OSError, match=r"Input/output error, at byte 8192 of the file.*x\.npy"):
        reader.read(torch.tensor([9]), torch.empty(1, WIDTH))


def test_the_page_cache_stays_as_it_is(table: DiskTable) -> None:
    empty_page_cache(table.path)
    if any(resident(table.path)):
        pytest.skip("the file system lies in memory")
    reader, out = DiskReader(table), torch.empty(ROWS, WIDTH)
    reader.read(torch.arange(1, ROWS, 5), out, gap=0)
    reader.read_range(0, ROWS, out)
    assert not any(resident(table.path))


def test_pages_of_others_stay(tmp_path: Path) -> None:
    table, _ = a_table(tmp_path)
    reader = DiskReader(table)
    np.fromfile(table.path, np.uint8)
    before = resident(table.path)
    reader.read_range(0, ROWS, torch.empty(ROWS, WIDTH))
    assert resident(table.path) == before and all(before)


@pytest.mark.parametrize("how", ["opening", "no alignment", "reading"])
def test_one_warning_without_direct_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Opening refuses the flag, the system tells that there are none, or reads are refused."""
    table, wanted = a_table(tmp_path)
    if how == "no alignment":
        monkeypatch.setattr(file, "direct_block", lambda _: 0)
    elif how == "opening":
        plain = os.open

        def refuse(path: str, flags: int) -> int:
            if flags & os.O_DIRECT:
                raise OSError(errno.EINVAL, "no such flag")
            return plain(path, flags)

        monkeypatch.setattr(file.os, "open", refuse)
    else:
        true = file.read_rows

        def read_rows(*arguments: object) -> ReadRows:
            flags = Path(f"/proc/self/fdinfo/{arguments[0]}").read_text()
            is_direct = int(flags.split("flags:")[1].split()[0], 8) & os.O_DIRECT
            return ReadRows(0, 0, errno.EINVAL, False, 0) if is_direct else true(*arguments)

        monkeypatch.setattr(file, "read_rows", read_rows)
    monkeypatch.setattr(file, "_warned", set())
    row, out = torch.arange(0, ROWS, 2), torch.empty(ROWS // 2, WIDTH)
    with pytest.warns(UserWarning, match=r"has no direct reads.*slower"):
        DiskReader(table).read(row, out)
    assert torch.equal(out, wanted[::2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DiskReader(table).read(row, out)
