"""Gives nodes internal ids by owner and type, and makes the directory of these ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.partition.book import PartitionBook
from pyg_batchgnn.partition.move import group
from pyg_batchgnn.partition.reading import ReadingSlice


@dataclass(frozen=True)
class Numbering:
    """The owners and the internal ids of the nodes that this rank has read."""

    book: PartitionBook
    counts: Tensor  # [ranks, parts, types], how many nodes of each part and type each rank has read
    owner: Tensor  # [n] int32 or int64, the part of each node
    internal: Tensor  # [n] ``book.id_dtype``, the internal id of each node


def number_nodes(comm: Communicator, slice_: ReadingSlice, owner: Tensor, parts: int) -> Numbering:
    """Numbers all nodes by part, then type, then original id. Collective. ``owner``: [n], the part
    of each node that this rank has read."""
    types = slice_.schema.num_types
    cell = owner.clone() if types > 1 else owner
    for number in range(types if types > 1 else 0):
        cell[slice_.rows_of(number)] = owner[slice_.rows_of(number)] * types + number
    mine = torch.bincount(cell, minlength=parts * types)
    counts = comm.all_gather(mine.view(1, -1), MessageKind.PARTITION).rows
    book = PartitionBook([0, *counts.sum(0).cumsum(0).tolist()], types)
    start = book.offsets[:-1] + counts[: comm.rank].sum(0)
    internal = torch.empty(owner.numel(), dtype=book.id_dtype)
    grouping = group(cell, parts * types)
    at = (start - (mine.cumsum(0) - mine)).repeat_interleave(mine) + torch.arange(owner.numel())
    grouping.undo(at.to(book.id_dtype), internal)
    return Numbering(book, counts.view(-1, parts, types), owner, internal)


def make_directory(
    comm: Communicator, slice_: ReadingSlice, internal: Tensor, bounds: Sequence[Tensor]
) -> list[tuple[int, Tensor]]:
    """Sends internal ids to the ranks that shall know them. Collective. ``internal``: [n], of the
    nodes that were read. ``bounds``: by type, [ranks + 1] int64, each rank's range of original ids.
    Returns by type the first original id of this rank's range, and its internal ids."""
    found = []
    for number, ranges in enumerate(bounds):
        own, first = internal[slice_.rows_of(number)], slice_.nodes_of(number).start
        counts = (ranges - first).clamp(0, own.numel()).diff().tolist()
        rows = comm.exchange(own, counts, MessageKind.PARTITION).rows
        found.append((int(ranges[comm.rank]), rows))
    return found


@dataclass(frozen=True)
class Runs:
    """Which parts each rank builds: consecutive ones, one each if there are as many as ranks."""

    parts: int
    ranks: int

    def of(self, rank: int) -> range:
        return range(rank * self.parts // self.ranks, (rank + 1) * self.parts // self.ranks)

    @property
    def bounds(self) -> Tensor:
        return torch.tensor([rank * self.parts // self.ranks for rank in range(self.ranks + 1)])

    def by_rank(self, of_parts: Sequence[int]) -> list[int]:
        return [sum(of_parts[part] for part in self.of(rank)) for rank in range(self.ranks)]


class RunRows:
    """The rows of one type's nodes in the parts that a rank builds: by part, then by internal id.
    ``starts``: [parts + 1] int64, where the rows of each part begin."""

    def __init__(self, book: PartitionBook, parts: range, node_type: int) -> None:
        self._firsts = torch.tensor([book.nodes_of(part, node_type).start for part in parts]).long()
        self.starts = torch.zeros(len(parts) + 1, dtype=torch.int64)
        torch.cumsum(book.sizes[parts.start : parts.stop, node_type], 0, out=self.starts[1:])

    def rows(self, internal: Tensor) -> Tensor:
        part = torch.searchsorted(self._firsts, internal, right=True) - 1
        return internal - (self._firsts - self.starts[:-1])[part]
