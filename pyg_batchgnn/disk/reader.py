"""Reading rows of a file past the page cache."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from pyg_batchgnn.disk.tables import DiskTable


@dataclass
class ReadCounters:
    """Counts over some reads.

    Attributes:
        rows: rows that were read.
        useful: bytes of these rows.
        bytes: bytes that were read from the file.
        operations: requests to the file.
        seconds: wall time.
    """

    rows: int = 0
    useful: int = 0
    bytes: int = 0
    operations: int = 0
    seconds: float = 0.0

    def add(self, other: ReadCounters) -> None:
        """Adds other counts to these."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


class DiskReader:
    """Reads rows of a table in a file. Threads may share it.

    Raises:
        OSError: the file cannot be opened, or is too short for the table.
    """

    def __init__(self, table: DiskTable) -> None:
        self.table = table
        self._file = os.open(table.path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, row: Tensor, out: Tensor, place: Tensor | None = None) -> ReadCounters:
        """Writes rows of the file to rows of a tensor.

        Args:
            row: [n] int64, rows of the table, ascending and distinct.
            out: [m, ...] of the table's type and row shape, contiguous.
            place: [n] int64, the row of ``out`` that gets each of them; None: the first n rows.

        Raises:
            OSError: reading failed; it names the file and the byte.
        """
        begin, size = time.perf_counter(), self.table.row_bytes
        where = range(len(row)) if place is None else place.tolist()
        flat = out.view(len(out), -1).view(torch.uint8)
        for at, to in zip(row.tolist(), where, strict=True):
            found = os.pread(self._file, size, self.table.offset + at * size)
            flat[to] = torch.frombuffer(bytearray(found), dtype=torch.uint8)
        count = len(row)
        return ReadCounters(count, count * size, count * size, count, time.perf_counter() - begin)

    def close(self) -> None:
        """Closes the file. Closing again does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
