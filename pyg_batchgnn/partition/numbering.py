"""Gives nodes internal ids by owner and type, and makes the directory that knows these ids."""

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
class Directory:
    """The internal ids by node type and original id; each rank has those of a range of each type.

    Attributes:
        bounds: by type, [ranks + 1] int64, where each rank's range of original ids begins.
        rank: the rank of this process.
        internal: by type, [k], the internal ids of this rank's range.
    """

    bounds: list[Tensor]
    rank: int
    internal: list[Tensor]


@dataclass(frozen=True)
class Numbering:
    """The owners of the nodes that were read, and their new ids.

    Attributes:
        book: the partition book.
        counts: [ranks, parts, types], the number of nodes of each part and type that each rank has
            read.
        owner: [n] int32 or int64, the part of every node that this rank has read.
        internal: [n] ``book.id_dtype``, the internal ids of these nodes.
    """

    book: PartitionBook
    counts: Tensor
    owner: Tensor
    internal: Tensor


def number_nodes(comm: Communicator, slice_: ReadingSlice, owner: Tensor, parts: int) -> Numbering:
    """Numbers the nodes by part, within a part by type, within a type by original id. Collective.

    Args:
        comm: the communicator of all ranks; the ranges of original ids that they have read follow
            each other.
        slice_: the nodes that this rank has read.
        owner: [n], the part of each of them.
        parts: the number of parts.
    """
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
) -> Directory:
    """Moves internal ids from the ranges that were read to the ranges of the directory. Collective.

    Args:
        comm: the communicator of all ranks.
        slice_: the nodes that this rank has read.
        internal: [n], their internal ids.
        bounds: by type, [ranks + 1] int64, the ranges of the directory.
    """
    found = []
    for number, ranges in enumerate(bounds):
        own, first = internal[slice_.rows_of(number)], slice_.nodes_of(number).start
        counts = (ranges - first).clamp(0, own.numel()).diff().tolist()
        found.append(comm.exchange(own, counts, MessageKind.PARTITION).rows)
    return Directory(list(bounds), comm.rank, found)
