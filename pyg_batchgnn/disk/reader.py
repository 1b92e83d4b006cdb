"""Reading rows of a file past the page cache."""

from __future__ import annotations

import errno
import time
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.disk.file import SourceFile
from pyg_batchgnn.disk.mapped_tables import DiskTable
from pyg_batchgnn.disk.rates import DiskPace, DiskRates, ReadCost, pace_of, rates_of
from pyg_batchgnn.ops import ReadRows, Requests, RowFile


@dataclass
class ReadCounters:
    """Counts over some reads."""

    rows: int = 0  # rows that were read
    useful: int = 0  # bytes of these rows
    bytes: int = 0  # bytes that were read from the file, which are whole blocks
    operations: int = 0  # requests to the file
    seconds: float = 0.0  # wall time

    def add(self, other: ReadCounters) -> None:
        """Adds other counts to these."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


class DiskReader:
    """Reads rows of a table in a file past the page cache. Threads may share it.

    Reading waits for the disk and takes little of a processor; a thread that computes should leave
    it to another one.

    Args:
        table: where the rows lie.
        rates: of the disk, if they are known; None: measured once for each disk (`rates_of`).

    Raises:
        OSError: the file cannot be opened, or is too short for the table.
    """

    def __init__(self, table: DiskTable, rates: DiskRates | None = None) -> None:
        self.table = table
        self._file = SourceFile(table.path)
        self._given = rates
        self._rows = RowFile(table.offset, table.row_bytes, table.rows)
        end = table.offset + table.nbytes
        if end > self._file.size:
            self.close()
            text = f"the table ends at byte {end}, but the file has {self._file.size}"
            raise OSError(errno.EINVAL, text, table.path)

    @property
    def rates(self) -> DiskRates:
        """The rates of the disk. The first call may measure them, for a second."""
        return self._given or rates_of(self._file)

    @property
    def device(self) -> int:
        """The number of the file system that the file lies on."""
        return self._file.device

    def pace(self, fresh: float = 0.0) -> DiskPace:
        """Returns what the disk gives at first and keeps up, measured for some seconds. Rates that
        were given are taken to last.

        ``fresh``: bytes of memory that the system gives meanwhile for each byte that is read.
        """
        if self._given is None:
            return pace_of(self._file, fresh)
        return DiskPace(self._given.bytes_per_second, self._given.bytes_per_second)

    def plan(self, row: Tensor) -> ReadCost:
        """Returns the gap that `read` takes by itself, and what it predicts to read. ``row``: [n]
        int64, ascending."""
        return self.rates.choose_gap(self._rows, row, self._file.rule)

    def read(
        self,
        row: Tensor,
        out: Tensor,
        place: Tensor | None = None,
        gap: int | None = None,
        requests: Requests = Requests.ANY,
    ) -> ReadCounters:
        """Writes rows of the file to rows of a tensor.

        Args:
            row: [n] int64, rows of the table, ascending; a row may come several times.
            out: [m, ...] of the table's type and row shape, contiguous.
            place: [n] int64, the row of ``out`` that gets each of them; None: the first n rows.
            gap: rows are read together where at most this number of bytes, of whole blocks, lies
                between them; None: as `plan` finds.
            requests: how the system is asked.

        Raises:
            OSError: reading failed; it names the file and the byte. Some rows may be written.
        """
        begin = time.perf_counter()
        self._check_out(out)
        if gap is None:
            gap = self.plan(row).gap if row.numel() > 1 else 0
        found = self._file.read(self._rows, row, out, place, gap, requests)
        return self._counters(row.numel(), found, begin)

    def read_range(self, first: int, count: int, out: Tensor) -> ReadCounters:
        """Writes consecutive rows of the file to the first rows of a tensor.

        Args:
            first, count: rows ``first`` to ``first + count - 1`` of the table.
            out: [m, ...] of the table's type and row shape, contiguous, of at least ``count`` rows.

        Raises:
            OSError: as for `read`.
        """
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
        """Closes the file. Closing again does nothing."""
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
    """Returns a copy of a table in memory, on huge pages. Raises OSError if reading failed; it
    names the file and the byte."""
    out = torch.empty((table.rows, *table.row_shape), dtype=table.dtype)
    ops.advise_huge_pages(out)
    reader = DiskReader(table)
    try:
        reader.read_range(0, table.rows, out)
    finally:
        reader.close()
    return out
