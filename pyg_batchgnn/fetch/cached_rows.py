"""Rows of remote nodes of one type that stay here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.store import RowBlock, RowFormat

#: Bytes of rows that are received at once when a cache is filled.
_PIECE = 16 << 20
#: Bytes of a node's id in a cache.
_ID_BYTES = 8


@dataclass(frozen=True)
class CacheSplit:
    """Nodes that a fetch group needs, split by whether the cache has their rows.

    Attributes:
        missing: [m] int64, the nodes whose rows the cache has not, ascending.
        row: [h] int64, the rows in the cache of the other nodes.
        place: [m + h] int64, the place of each node if missing ones come first.
    """

    missing: Tensor
    row: Tensor
    place: Tensor

    @property
    def hits(self) -> int:
        """The number of nodes whose rows the cache has."""
        return self.row.numel()


class CachedRows:
    """The rows of some remote nodes of one type.

    Args:
        node: [c] int64 internal ids, ascending.

    Attributes:
        node: as given.
    """

    def __init__(self, node: Tensor) -> None:
        self.node = node
        self._rows = RowBlock({})

    @property
    def nbytes(self) -> int:
        """The bytes of rows and ids."""
        return self.node.nbytes + sum(column.nbytes for column in self._rows.columns.values())

    def begin_fill(self, row_format: RowFormat) -> Iterator[slice]:
        """Makes room for rows of a format. Yields the positions to fill, in bounded pieces."""
        self._format, self._rows = row_format, row_format.empty(self.node.numel(), _fresh)
        piece = max(1, _PIECE // max(1, bytes_in_cache(row_format)))
        for begin in range(0, self.node.numel(), piece):
            yield slice(begin, begin + piece)

    def fill(self, at: slice, read: RowBlock) -> None:
        """Keeps rows that were read, for the nodes at some positions."""
        columns = read.columns
        for name, column in self._rows.columns.items():
            column[at] = columns[name]

    def split(self, node: Tensor) -> CacheSplit:
        """Splits ascending ids, [n] int64, by whether their rows are here."""
        position, row = _common(node, self.node)
        missing = torch.ones(node.numel(), dtype=torch.bool)
        missing[position] = False
        left = missing.nonzero().view(-1)
        place = torch.empty_like(node)
        place[left] = torch.arange(left.numel())
        place[position] = torch.arange(left.numel(), node.numel())
        return CacheSplit(node[left], row, place)

    def put(self, block: RowBlock, split: CacheSplit) -> None:
        """Writes the rows that are here behind those that are not."""
        if split.hits:
            begin = split.missing.numel()
            self._format.gather(block.rows(begin, begin + split.hits), self._rows, split.row)


def bytes_in_cache(row_format: RowFormat) -> int:
    """Returns the bytes that a node takes in a cache."""
    return _ID_BYTES + row_format.row_bytes


def _fresh(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Returns memory of torch's allocator, which is kept."""
    return torch.empty(shape, dtype=dtype)


def _common(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the places of the values that two ascending vectors have in common, in each of them.

    The shorter vector is looked up in the longer one.
    """
    if one.numel() < other.numel():
        at, found = _common(other, one)
        return found, at
    at = torch.searchsorted(one, other)
    found = (one[at.clamp(max=max(one.numel() - 1, 0))] == other) if one.numel() else at.bool()
    return at[found], found.nonzero().view(-1)
