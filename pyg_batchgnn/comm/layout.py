"""The layout of attributes of different dtypes in one row of bytes, for one exchange."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Field:
    """One attribute of a row: its dtype and its shape without the row dimension."""

    dtype: torch.dtype
    shape: tuple[int, ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes per row."""
        return math.prod(self.shape) * self.dtype.itemsize


class RowLayout:
    """The positions of attributes in a row of bytes.

    Attributes with wide elements come first, and rows are padded with zeros to a multiple of the
    widest element. So every attribute of packed rows can be read and written in place (`views`).
    The padding is at most 15 bytes per row, and at most 7 where no element is wider than 8 bytes.
    The layout depends on the fields alone and not on their order of insertion, so that ranks with
    the same fields agree.

    Args:
        fields: the attributes by name, at least one.

    Attributes:
        fields: the attributes by name, in the order of the row.
        offsets: the first byte of each attribute, by name.
        row_bytes: bytes per row, with the padding.
    """

    def __init__(self, fields: Mapping[str, Field]) -> None:
        if not fields:
            raise ValueError("a row needs at least one field")
        self.fields = dict(sorted(fields.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])))
        self.offsets: dict[str, int] = {}
        end = 0
        for name, field in self.fields.items():
            self.offsets[name] = end
            end += field.bytes
        self._end = end
        widest = max(field.dtype.itemsize for field in self.fields.values())
        self.row_bytes = -(-end // widest) * widest

    @classmethod
    def of(cls, columns: Mapping[str, Tensor]) -> RowLayout:
        """Returns the layout of columns [n, ...]."""
        return cls({name: Field(column.dtype, tuple(column.shape[1:])) for name, column in columns.items()})

    def empty(self, rows: int) -> Tensor:
        """Returns uint8 rows [rows, row_bytes], to be written through `views`.

        Only the padding is set.
        """
        packed = torch.empty(rows, self.row_bytes, dtype=torch.uint8)
        packed[:, self._end :] = 0
        return packed

    def views(self, packed: Tensor) -> dict[str, Tensor]:
        """Returns a view [n, *shape] of each attribute of packed rows. The views are strided.

        Args:
            packed: [n, row_bytes], uint8, contiguous.
        """
        if packed.dtype != torch.uint8 or packed.dim() != 2 or packed.shape[1] != self.row_bytes:
            raise ValueError(
                f"packed rows must be uint8 of shape [n, {self.row_bytes}], "
                f"not {packed.dtype} of shape {list(packed.shape)}"
            )
        if not packed.is_contiguous():
            raise ValueError("packed rows must be contiguous; call .contiguous() first")
        return {name: self._view(packed, name) for name in self.fields}

    def _view(self, packed: Tensor, name: str) -> Tensor:
        field, rows = self.fields[name], len(packed)
        width = field.dtype.itemsize
        if not rows or not field.bytes:
            return torch.empty(rows, *field.shape, dtype=field.dtype)
        inner = [math.prod(field.shape[at + 1 :]) for at in range(len(field.shape))]
        elements = packed.view(-1).view(field.dtype)
        return elements.as_strided(
            (rows, *field.shape),
            (self.row_bytes // width, *inner),
            elements.storage_offset() + self.offsets[name] // width,
        )

    def pack(self, columns: Mapping[str, Tensor]) -> Tensor:
        """Packs columns [n, *shape], one per field, into rows [n, row_bytes] of bytes."""
        if set(columns) != set(self.fields):
            raise ValueError(f"columns {sorted(columns)} do not match the layout's {sorted(self.fields)}")
        rows = {name: len(column) for name, column in columns.items()}
        if len(set(rows.values())) != 1:
            raise ValueError(f"columns differ in their number of rows: {rows}")
        for name, field in self.fields.items():
            column = columns[name]
            if column.dtype != field.dtype or tuple(column.shape[1:]) != field.shape:
                raise ValueError(
                    f"column {name!r} is {column.dtype} {list(column.shape[1:])} per row, "
                    f"the layout has {field.dtype} {list(field.shape)}"
                )
        packed = self.empty(next(iter(rows.values())))
        for name, view in self.views(packed).items():
            view.copy_(columns[name])
        return packed

    def unpack(self, packed: Tensor) -> dict[str, Tensor]:
        """Returns a contiguous copy of each attribute of packed rows. `views` copies nothing."""
        return {name: view.contiguous() for name, view in self.views(packed).items()}
