"""Cuts a saved partition for another number of ranks.

The nodes of each type lie in a row, by saved part and then by original id, and each rank gets a
range of every such row. So the internal ids stay in a graph of one node type. In one of several
types they move by whole ranges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pyg_batchgnn.partition.book import PartitionBook
from pyg_batchgnn.partition.part_files import PartRows

#: The ids that are renumbered at a time.
_IDS = 1 << 17


@dataclass(frozen=True)
class Recut:
    """A saved partition and the ranges of its nodes that ranks get.

    Attributes:
        old: the book of the saved parts.
        cuts: by node type, [ranks + 1], where each rank's range begins in the row of the type.
    """

    old: PartitionBook
    cuts: tuple[Sequence[int], ...]

    @classmethod
    def none(cls, old: PartitionBook) -> Recut:
        """Returns the cut that leaves the parts as they are."""
        return cls(old, tuple(starts.tolist() for starts in _starts(old)))

    @cached_property
    def book(self) -> PartitionBook:
        """The book of the ranks."""
        sizes = torch.stack([torch.tensor(cuts).diff() for cuts in self.cuts], dim=1)
        return PartitionBook([0, *sizes.flatten().cumsum(0).tolist()], len(self.cuts))

    @property
    def is_new(self) -> bool:
        """True if the ranks get other nodes than the saved parts have."""
        return self.book != self.old

    def pieces(self, rank: int, node_type: int) -> list[PartRows]:
        """Returns a rank's nodes of a type as rows of the saved parts' nodes of the type."""
        own = range(*self.cuts[node_type][rank : rank + 2])
        held = _ranges(self._starts[node_type])
        return [PartRows(number, *overlap(own, theirs)) for number, theirs in enumerate(held)]

    def renumbered(self, internal: Tensor) -> Tensor:
        """Returns the new internal ids of old ones."""
        if self.book.num_types == 1 or not self.is_new:
            return internal
        firsts, shifts = self._shifts
        found = torch.empty_like(internal)
        for new, old in zip(found.split(_IDS), internal.split(_IDS), strict=True):
            new.copy_(old + shifts[torch.searchsorted(firsts, old.to(torch.int64), right=True) - 1])
        return found

    @cached_property
    def _starts(self) -> list[Tensor]:
        return _starts(self.old)

    @cached_property
    def _shifts(self) -> tuple[Tensor, Tensor]:
        """The first old id of each range that moves as a whole, ascending, and by how much."""
        found = []
        for node_type, cuts in enumerate(self.cuts):
            for number, theirs in enumerate(_ranges(self._starts[node_type])):
                for rank, own in enumerate(_ranges(torch.tensor(cuts))):
                    begin, end = overlap(own, theirs)
                    if begin < end:
                        old = self.old.nodes_of(number, node_type).start + begin
                        place = theirs.start + begin - own.start
                        found.append((old, self.book.nodes_of(rank, node_type).start + place - old))
        moves = torch.tensor(sorted(found), dtype=torch.int64).view(-1, 2)
        return moves[:, 0].contiguous(), moves[:, 1].contiguous()


def _starts(book: PartitionBook) -> list[Tensor]:
    """Returns by type where the nodes of each part begin in the row of the type, [parts + 1]."""
    zero = torch.zeros(1, dtype=torch.int64)
    return [torch.cat([zero, sizes.cumsum(0)]) for sizes in book.sizes.t()]


def _ranges(starts: Tensor) -> list[range]:
    bounds = starts.tolist()
    return [range(*bounds[at : at + 2]) for at in range(len(bounds) - 1)]


def overlap(own: range, theirs: range) -> tuple[int, int]:
    """Returns what two ranges have in common, counted from the beginning of the second."""
    begin, end = max(own.start, theirs.start), min(own.stop, theirs.stop)
    return (begin - theirs.start, end - theirs.start) if begin < end else (0, 0)
