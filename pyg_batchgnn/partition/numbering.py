"""Internal ids from owners, and the directory that knows them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator, Kind
from pyg_batchgnn.partition.book import PartitionBook
from pyg_batchgnn.partition.move import Remote, group
from pyg_batchgnn.partition.part import directory_slice, slice_size


@dataclass(frozen=True)
class Directory:
    """Internal ids of the original ids of one rank's slice."""

    num_nodes: int
    ranks: int
    rank: int
    internal: Tensor

    def remote(self) -> Remote:
        """The internal ids of all nodes, to be pulled by original id."""
        size, first = (
            slice_size(self.num_nodes, self.ranks),
            self.rank * slice_size(self.num_nodes, self.ranks),
        )
        return Remote(
            lambda node: torch.div(node, size, rounding_mode="floor"),
            lambda node: self.internal[(node - first).to(torch.int64)],
            (),
            self.internal.dtype,
        )


@dataclass(frozen=True)
class Numbering:
    """Who owns the nodes that were read, and their new ids.

    Attributes:
        book: of all parts.
        counts: [ranks, parts] nodes of each part that each rank has read.
        owner: [n] int32 or int64 part of every node of this rank's range of original ids.
        internal: [n] ``book.id_dtype``.
    """

    book: PartitionBook
    counts: Tensor
    owner: Tensor
    internal: Tensor


def number_nodes(comm: Communicator, owner: Tensor, parts: int) -> Numbering:
    """Numbers the nodes by part, within a part by original id. Collective.

    Args:
        comm: of all ranks; the ranges of original ids that they have read follow each other.
        owner: [n] part of every node of this rank's range.
        parts: how many there are.
    """
    mine = torch.bincount(owner, minlength=parts)
    counts = comm.all_gather(mine.view(1, -1), Kind.PARTITION).rows
    book = PartitionBook([0, *counts.sum(0).cumsum(0).tolist()])
    start = book.offsets[:-1] + counts[: comm.rank].sum(0)
    internal = torch.empty(owner.numel(), dtype=book.id_dtype)
    grouping = group(owner, parts)
    at = (start - (mine.cumsum(0) - mine)).repeat_interleave(mine) + torch.arange(owner.numel())
    grouping.undo(at.to(book.id_dtype), internal)
    return Numbering(book, counts, owner, internal)


def make_directory(comm: Communicator, internal: Tensor, first: int, num_nodes: int) -> Directory:
    """Moves internal ids from the ranges that were read to the slices of the directory. Collective.

    Args:
        comm: of all ranks.
        internal: [n] those of the original ids from ``first`` on.
        first: original id.
        num_nodes: of the whole graph.
    """
    slices = [directory_slice(num_nodes, comm.size, rank) for rank in range(comm.size)]
    ends = [min(max(part.stop - first, 0), internal.numel()) for part in slices]
    counts = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    found = comm.exchange(internal, counts, Kind.PARTITION).rows
    return Directory(num_nodes, comm.size, comm.rank, found)
