"""The memory of a pass over all nodes, and the files of what does not fit it."""

from __future__ import annotations

import math
import os
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from pyg_batchgnn import machine
from pyg_batchgnn.disk import DiskReader, DiskTable, ScratchTable, read_rows, read_span
from pyg_batchgnn.ops import as_stored, free_bytes
from pyg_batchgnn.types import NewRows, ReadableRows

#: The address, the shape and the type of a table. Others may begin at the same address.
_Place: TypeAlias = tuple[int, tuple[int, ...], torch.dtype]


class RowsInMemory:
    """A new table in memory. ``tables``: by rank; this process writes its own."""

    def __init__(self, tables: Mapping[int, Tensor], rank: int) -> None:
        self._tables, self._own = tables, tables[rank]

    def write(self, begin: int, rows: Tensor) -> None:
        self._own[begin : begin + len(rows)] = rows

    def finish(self) -> ReadableRows:
        return self._tables


class RowsInFile:
    """A new table in a file, as it does not fit memory; in one process."""

    def __init__(self, memory: PassMemory, table: ScratchTable) -> None:
        self._memory, self._table = memory, table

    def write(self, begin: int, rows: Tensor) -> None:
        assert begin == self._table.written, "rows are written in order"
        self._table.append(rows)

    def finish(self) -> ReadableRows:
        table = self._table.finish()
        self._memory.read_from_file(table)
        return {0: table}


class PassMemory:
    """The memory of passes over all nodes in one process. Mapped features and rows of layers that
    fit half of the budget are held; others are read from files past the page cache. Pieces take the
    rest."""

    def __init__(self, budget: int | None, scratch: str | Path | None) -> None:
        self._budget = budget
        self._held = WeakTensorKeyDictionary()  # the bytes of each table, while the tensor lives
        self._scratch = None if scratch is None else Path(scratch).expanduser()
        if self._scratch is not None and not self._scratch.is_dir():
            raise ValueError(f"scratch is {str(scratch)!r}, which is no folder; make it first")
        self._readers: dict[_Place, DiskReader] = {}
        self._beside_data: Path | None = None

    @property
    def of_piece(self) -> int:
        return free_bytes() if self._budget is None else max(1, self._budget - sum(self._held.values()))

    def take_features(self, table: Tensor) -> None:
        """Decides whether features are read in place or from their file."""
        place = DiskTable.of(table)
        if place is None or self.is_in_file(table):
            return
        if self._beside_data is None and not place.path.startswith("/proc/"):
            self._beside_data = Path(place.path).parent
        if self._fits(table.nbytes):
            self._held[table] = table.nbytes
        else:
            self.read_from_file(table)

    def read_from_file(self, table: Tensor) -> None:
        """Reads a mapped table [n, ...] from its file from now on."""
        found, place = DiskTable.of(table), _place(table)
        if found is not None:
            self._readers[place] = DiskReader(found)
            weakref.finalize(table, _forget, weakref.ref(self), place)

    def is_in_file(self, table: Tensor) -> bool:
        return _place(table) in self._readers

    def span(self, table: Tensor, rows: range) -> Tensor:
        """Returns consecutive rows of a table: a view, or a copy if it lies in a file."""
        return read_span(table, rows, self._readers.get(_place(table)))

    def rows(self, table: Tensor, row: Tensor) -> Tensor:
        """Returns a copy of rows ``row`` [n] int64 of a table, in any order."""
        return read_rows(table, row, self._readers.get(_place(table)))

    def new_rows(self, shape: tuple[int, ...], dtype: torch.dtype) -> NewRows:
        """Makes a table, in memory or, if it does not fit, in a file. Raises OSError if that does
        not."""
        size = math.prod(shape) * dtype.itemsize
        if size and not self._fits(size):
            return RowsInFile(self, ScratchTable(self._folder(), shape[0], shape[1:], dtype))
        table = torch.empty(shape, dtype=dtype)
        self._held[table] = table.nbytes
        return RowsInMemory({0: table}, 0)

    def _fits(self, size: int) -> bool:
        if self._budget is None:
            return size <= machine.memory().available // 2
        return sum(self._held.values()) + size <= self._budget // 2

    def _folder(self) -> Path:
        beside = self._beside_data
        if self._scratch is None and beside is not None and os.access(beside, os.W_OK | os.X_OK):
            return beside
        return self._scratch or Path(tempfile.gettempdir())


def _place(table: Tensor) -> _Place:
    stored = as_stored(table)
    return stored.data_ptr(), tuple(stored.shape), stored.dtype


def _forget(memory: weakref.ref[PassMemory], place: _Place) -> None:
    found = memory()
    if found is not None:
        found._readers.pop(place).close()
