"""Gives nodes internal ids by owner, and makes the directory that knows these ids."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.partition.book import PartitionBook
from pyg_batchgnn.partition.move import Remote, group, group_by_range


@dataclass(frozen=True)
class Directory:
    """The internal ids by original id; each rank has those of a range.

    Attributes:
        bounds: [ranks + 1] int64, where each rank's range of original ids begins.
        rank: the rank of this process.
        internal: [k], the internal ids of this rank's range.
    """

    bounds: Tensor
    rank: int
    internal: Tensor

    def remote(self) -> Remote:
        """Returns the internal ids of all nodes, to be pulled by original id."""
        first = int(self.bounds[self.rank])
        return Remote(
            lambda node: group_by_range(node, self.bounds),
            lambda node: self.internal.index_select(0, node.sub_(first)),
            (),
            self.internal.dtype,
        )


@dataclass(frozen=True)
class Numbering:
    """The owners of the nodes that were read, and their new ids.

    Attributes:
        book: the partition book.
        counts: [ranks, parts], the number of nodes of each part that each rank has read.
        owner: [n] int32 or int64, the part of every node of this rank's range of original ids.
        internal: [n] ``book.id_dtype``, the internal ids of these nodes.
    """

    book: PartitionBook
    counts: Tensor
    owner: Tensor
    internal: Tensor


def number_nodes(comm: Communicator, owner: Tensor, parts: int) -> Numbering:
    """Numbers the nodes by part, within a part by original id. Collective.

    Args:
        comm: the communicator of all ranks; the ranges of original ids that they have read follow
            each other.
        owner: [n], the part of every node of this rank's range.
        parts: the number of parts.
    """
    mine = torch.bincount(owner, minlength=parts)
    counts = comm.all_gather(mine.view(1, -1), MessageKind.PARTITION).rows
    book = PartitionBook([0, *counts.sum(0).cumsum(0).tolist()])
    start = book.offsets[:-1] + counts[: comm.rank].sum(0)
    internal = torch.empty(owner.numel(), dtype=book.id_dtype)
    grouping = group(owner, parts)
    at = (start - (mine.cumsum(0) - mine)).repeat_interleave(mine) + torch.arange(owner.numel())
    grouping.undo(at.to(book.id_dtype), internal)
    return Numbering(book, counts, owner, internal)


def make_directory(comm: Communicator, internal: Tensor, first: int, bounds: Tensor) -> Directory:
    """Moves internal ids from the ranges that were read to the ranges of the directory. Collective.

    Args:
        comm: the communicator of all ranks.
        internal: [n], the internal ids of the original ids from ``first`` on.
        first: the first of these original ids.
        bounds: [ranks + 1] int64, the ranges of the directory.
    """
    counts = (bounds - first).clamp(0, internal.numel()).diff().tolist()
    found = comm.exchange(internal, counts, MessageKind.PARTITION).rows
    return Directory(bounds, comm.rank, found)
