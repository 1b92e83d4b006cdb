"""Reading rows of a file past the page cache."""

from __future__ import annotations

import errno
import time
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.disk.file import SourceFile
from pyg_batchgnn.disk.mapped_tables import DiskTable
from pyg_batchgnn.ops import ReadRows, Requests, RowFile

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
