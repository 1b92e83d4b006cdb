"""Reading rows of a file past the page cache: the open file, its faults, what is read together."""

from __future__ import annotations

import errno
import os
import stat
import time
import warnings
from dataclasses import dataclass, fields, replace
from pathlib import Path

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.disk.mapped_tables import DiskTable
from pyg_batchgnn.ops import ReadRows, Requests, RowFile, RunRule, direct_block, read_rows

#: Reads past the page cache, where the system knows them.
_DIRECT = getattr(os, "O_DIRECT", 0)
#: The file systems (by their device) without direct reads that were warned of.
_warned: set[int] = set()


def _identity(found: os.stat_result) -> tuple[int, int, int, int]:
    """Returns numbers that change if a file is modified, or another file gets its name."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class SourceFile:
    """An open file for reading, which threads may share."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file, self.is_direct = _open(path)
        os.set_blocking(self._file, True)
        found = os.fstat(self._file)
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise OSError(errno.EINVAL, "rows are read from plain files only, but this is none", path)
        self._identity = _identity(found)
        self.size, self.device = found.st_size, found.st_dev
        block = direct_block(self._file) if self.is_direct else 0
        self.rule = replace(RunRule(), block=block) if block else RunRule()
        if not block:
            self._read_plainly()

    def read(
        self,
        rows: RowFile,
        row: Tensor,
        out: Tensor,
        place: Tensor | None,
        gap: int,
        requests: Requests = Requests.ANY,
    ) -> ReadRows:
        """Reads rows as `pyg_batchgnn.ops.read_rows` does. Raises OSError, with file and byte, if
        reading failed, or the file was cut or replaced."""
        self._check_identity()
        found = self._try(rows, row, out, place, gap, requests)
        if found.error == errno.EINVAL and self.is_direct:  # of larger blocks than the system says
            self._read_plainly()
            found = self._try(rows, row, out, place, gap, requests)
        if found.ends:
            text = f"the file ends before byte {found.error_at}; it was cut since it was opened"
            raise OSError(errno.EIO, text, self.path)
        if found.error:
            text = f"{os.strerror(found.error)}, at byte {found.error_at} of the file"
            raise OSError(found.error, text, self.path)
        return found

    def _try(
        self, rows: RowFile, row: Tensor, out: Tensor, place: Tensor | None, gap: int, requests: Requests
    ) -> ReadRows:
        rule = replace(self.rule, gap=gap)
        found = read_rows(self._file, rows, row, out, place, rule, requests)
        if not self.is_direct and row.numel():
            begin = rows.offset + int(row[0]) * rows.row_bytes
            end = rows.offset + (int(row[-1]) + 1) * rows.row_bytes
            first, block = begin // rule.block, rule.block
            _advise(self._file, first * block, (end // block + 1 - first) * block, "POSIX_FADV_DONTNEED")
        return found

    def _read_plainly(self) -> None:
        """Reads through the page cache from now on, and drops what was read from it."""
        if self.is_direct:
            os.close(self._file)
            self._file, self.is_direct = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC), False
        self.rule = replace(self.rule, block=RunRule().block)
        _advise(self._file, 0, 0, "POSIX_FADV_RANDOM")
        if self.device not in _warned:
            _warned.add(self.device)
            warnings.warn(
                f"the file system of {self.path} has no direct reads: rows are read by the page cache, which "
                f"is slower and drops these pages of the file from it",
                stacklevel=4,
            )

    def _check_identity(self) -> None:
        if self._file < 0:
            raise ValueError(f"the reader of {self.path} is closed")
        try:
            named = Path(self.path).stat()
        except OSError as error:
            raise OSError(error.errno, "the file was removed since it was opened", self.path) from error
        if _identity(named) != self._identity:
            what = "cut or written to" if named.st_ino == self._identity[1] else "replaced"
            sizes = f": {self.size} bytes then, {named.st_size} now" if named.st_size != self.size else ""
            text = f"the file was {what} since it was opened{sizes}"
            raise OSError(errno.ESTALE, text, self.path)

    def close(self) -> None:
        """Closes the file; may be called again."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        if getattr(self, "_file", -1) >= 0:
            os.close(self._file)


def _open(path: str) -> tuple[int, bool]:
    """Opens a file; returns its descriptor, and whether it is open for direct reads."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # opening a FIFO would wait for its writer
    if _DIRECT:
        try:
            return os.open(path, flags | _DIRECT), True
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
    return os.open(path, flags), False


def _advise(file: int, offset: int, count: int, advice: str) -> None:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file, offset, count, getattr(os, advice))


#: Rows with at most this number of bytes between them are read together. Disks read it in about the
#: time of one more request (decision 0044).
GAP = 32 << 10
#: Bytes of a table that are read together where the rate of its disk is measured.
_PIECE = 32 << 20


@dataclass
class ReadCounters:
    """Counts of some reads from files."""

    rows: int = 0  # rows that were read
    useful: int = 0  # bytes of these rows
    bytes: int = 0  # bytes that were read from the file, which are whole blocks
    operations: int = 0  # requests to the file
    seconds: float = 0.0  # wall time

    def add(self, other: ReadCounters) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


class DiskReader:
    """Reads rows of a table in a file past the page cache. Threads may share it. Reading waits for
    the disk and needs little of a processor, so a thread that computes should leave it to another
    one. Raises OSError if the file cannot be opened, or is too short for the table."""

    def __init__(self, table: DiskTable) -> None:
        self.table = table
        self._file = SourceFile(table.path)
        self._rows = RowFile(table.offset, table.row_bytes, table.rows)
        end = table.offset + table.nbytes
        if end > self._file.size:
            self.close()
            text = f"the table ends at byte {end}, but the file has {self._file.size}"
            raise OSError(errno.EINVAL, text, table.path)

    def predict(self, row: Tensor) -> tuple[int, int]:
        """Returns (bytes, requests) that reading rows [n] int64, ascending, takes."""
        operations, size = ops.count_operations(self._rows, row, replace(self._file.rule, gap=GAP))
        return size, operations

    def bytes_per_second(self, seconds: float = 1.0) -> float:
        """Measures the rate of large reads, for ``seconds`` or until the table ends."""
        rows = max(1, _PIECE // max(1, self.table.row_bytes))
        out = torch.empty((rows, *self.table.row_shape), dtype=self.table.dtype)
        found = ReadCounters()
        for first in range(0, self.table.rows, rows):
            found.add(self.read_range(first, min(rows, self.table.rows - first), out))
            if found.seconds >= seconds:
                break
        return found.bytes / max(found.seconds, 1e-9)

    def read(
        self,
        row: Tensor,
        out: Tensor,
        place: Tensor | None = None,
        gap: int = GAP,
        requests: Requests = Requests.ANY,
    ) -> ReadCounters:
        """Reads rows ``row`` [n] int64 of the file, ascending, maybe repeated, into a contiguous
        ``out`` [m, ...] of the table's dtype and row shape: into rows ``place`` [n] int64, or the
        first n. Rows with at most ``gap`` bytes of whole blocks in between are read together.
        ``requests``: the system's interface. Raises OSError, with file and byte, if reading failed;
        some rows may be written."""
        begin = time.perf_counter()
        self._check_out(out)
        found = self._file.read(self._rows, row, out, place, gap, requests)
        return self._counters(row.numel(), found, begin)

    def read_range(self, first: int, count: int, out: Tensor) -> ReadCounters:
        """Reads ``count`` rows from row ``first`` on into the first rows of ``out`` [m, ...].
        Raises OSError as `read`."""
        begin = time.perf_counter()
        self._check_out(out)
        if count < 0 or not 0 <= first <= self.table.rows - count or count > len(out):
            raise IndexError(
                f"rows {first} to {first + count} do not lie in a table of {self.table.rows} rows, or not in "
                f"the {len(out)} rows of out"
            )
        if count == 0:
            return ReadCounters()
        size = self.table.row_bytes
        whole = RowFile(self.table.offset + first * size, count * size, 1)
        one = torch.zeros(1, dtype=torch.int64)
        found = self._file.read(whole, one, out[:count].view(1, -1), None, 0)
        return self._counters(count, found, begin)

    def close(self) -> None:
        """Closes the file; may be called again."""
        self._file.close()

    def _counters(self, rows: int, found: ReadRows, begin: float) -> ReadCounters:
        seconds = time.perf_counter() - begin
        return ReadCounters(rows, rows * self.table.row_bytes, found.bytes, found.operations, seconds)

    def _check_out(self, out: Tensor) -> None:
        table = self.table
        if (out.dtype, tuple(out.shape[1:])) != (table.dtype, table.row_shape):
            raise ValueError(
                f"out has rows of {out.dtype} {list(out.shape[1:])}, the file has {table.dtype} "
                f"{list(table.row_shape)}"
            )


def read_whole(table: DiskTable) -> Tensor:
    """Returns a copy of a table in memory, on huge pages. Raises OSError as `DiskReader` does."""
    out = torch.empty((table.rows, *table.row_shape), dtype=table.dtype)
    ops.advise_huge_pages(out)
    reader = DiskReader(table)
    try:
        reader.read_range(0, table.rows, out)
    finally:
        reader.close()
    return out
