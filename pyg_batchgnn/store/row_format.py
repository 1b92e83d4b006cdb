"""Rows of one group: in memory one tensor per attribute, on the wire one row of bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import RowLayout

#: Makes a tensor from its shape and dtype.
Allocate = Callable[[tuple[int, ...], torch.dtype], Tensor]

#: Names of a row's columns: original ids and attributes are told apart.
_ORIGINAL, _ATTRIBUTE = "original", "attribute/"


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Some rows of one group.

    Attributes:
        attributes: by name, [n, ...] each.
        original: [n] int32 or int64, original ids of nodes, where they are read; else None.
    """

    attributes: dict[str, Tensor]
    original: Tensor | None = None

    @property
    def columns(self) -> dict[str, Tensor]:
        """All tensors, under names that tell attributes from original ids."""
        named = {_ATTRIBUTE + name: table for name, table in self.attributes.items()}
        return named if self.original is None else {_ORIGINAL: self.original, **named}

    @classmethod
    def of(cls, columns: Mapping[str, Tensor]) -> RowBlock:
        """Makes a block of `columns`."""
        names = [name for name in columns if name != _ORIGINAL]
        attributes = {name.removeprefix(_ATTRIBUTE): columns[name] for name in names}
        return cls(attributes, columns.get(_ORIGINAL))

    def rows(self, begin: int, end: int) -> RowBlock:
        """Returns the rows from ``begin`` to ``end``, as views."""
        return RowBlock.of({name: column[begin:end] for name, column in self.columns.items()})


class RowFormat:
    """Copies the rows of one group between blocks and bytes.

    Args:
        tables: some rows with the columns that are read; only their types and shapes matter.
        threads: at most this many threads copy; torch's own number where None.

    Attributes:
        wire_bytes: bytes of a row on the wire, padding included.
        row_bytes: bytes of a row in a block.
    """

    def __init__(self, tables: RowBlock, threads: int | None = None) -> None:
        columns, self._threads = tables.columns, threads
        self._layout = RowLayout.of(columns) if columns else None
        fields = self._layout.fields if self._layout is not None else {}
        self.wire_bytes = self._layout.row_bytes if self._layout is not None else 0
        self.row_bytes = sum(field.bytes for field in fields.values())
        self._fields = fields

    def empty(self, rows: int, allocate: Allocate = ops.empty) -> RowBlock:
        """Makes a block of rows that are not yet written."""
        made = {name: allocate((rows, *field.shape), field.dtype) for name, field in self._fields.items()}
        return RowBlock.of(made)

    def gather(self, out: RowBlock, tables: RowBlock, index: Tensor) -> None:
        """Copies the rows ``index`` [n] of ``tables`` to ``out``."""
        columns = tables.columns
        for name, column in out.columns.items():
            ops.put_rows(column, columns[name], index, self._threads)

    def pack(self, tables: RowBlock, index: Tensor, out: Tensor) -> None:
        """Writes the rows ``index`` [n] of ``tables`` as bytes. ``out``: [n * wire_bytes] uint8."""
        columns = tables.columns
        for name, column in self._columns(out).items():
            ops.put_rows(column, _bytes_of(columns[name]), index, self._threads)
        if self.row_bytes < self.wire_bytes:
            out.view(-1, self.wire_bytes)[:, self.row_bytes :] = 0

    def unpack(self, packed: Tensor, out: RowBlock) -> None:
        """Reads rows that `pack` wrote, one for each row of ``out``."""
        columns = out.columns
        for name, column in self._columns(packed).items():
            ops.put_rows(_bytes_of(columns[name]), column, None, self._threads)

    def _columns(self, packed: Tensor) -> dict[str, Tensor]:
        """Returns the bytes of each column of packed rows, [n, bytes] strided, of any alignment."""
        if self._layout is None or not self.wire_bytes:
            return {}
        rows, offsets = packed.view(-1, self.wire_bytes), self._layout.offsets
        return {
            name: rows[:, offsets[name] : offsets[name] + field.bytes]
            for name, field in self._fields.items()
            if field.bytes
        }


def _bytes_of(table: Tensor) -> Tensor:
    """Returns the bytes of contiguous rows, [n, bytes] uint8, a view."""
    rows, width = table.size(0), math.prod(table.shape[1:]) * table.element_size()
    if not rows or not width:
        return torch.empty(rows, width, dtype=torch.uint8)
    return table.view(rows, -1).view(torch.uint8)
