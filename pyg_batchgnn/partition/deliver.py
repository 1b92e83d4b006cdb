"""Sends nodes and adjacency lists to their owners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition.bounded import own_rounds
from pyg_batchgnn.partition.move import Grouping, group, pull, send
from pyg_batchgnn.partition.numbering import Directory, Numbering
from pyg_batchgnn.partition.part import slice_size
from pyg_batchgnn.partition.reading import ReadingSlice


@dataclass(frozen=True)
class Runs:
    """The parts that each rank builds: contiguous runs, of one part each where there are as many
    parts as ranks."""

    parts: int
    ranks: int

    def of(self, rank: int) -> range:
        """Returns the parts of a rank."""
        return range(rank * self.parts // self.ranks, (rank + 1) * self.parts // self.ranks)

    @property
    def bounds(self) -> Tensor:
        """The first part of each rank, [ranks + 1] int64."""
        return torch.tensor([rank * self.parts // self.ranks for rank in range(self.ranks + 1)])

    def directory_bounds(self, num_nodes: int) -> Tensor:
        """Returns where the directory slices of each rank's parts begin, [ranks + 1] int64."""
        return (self.bounds * slice_size(num_nodes, self.parts)).clamp(max=num_nodes)

    def by_rank(self, of_parts: Sequence[int]) -> list[int]:
        """Returns the sums over each rank's parts."""
        return [sum(of_parts[part] for part in self.of(rank)) for rank in range(self.ranks)]


@dataclass
class OwnNodes:
    """The nodes of one rank's parts and their adjacency lists.

    Attributes:
        parts: all parts that this rank builds.
        first: the internal id of their first node.
        node: [n] int64, the original ids.
        in_edges: the in-edges of these nodes, with explicit edge ids.
    """

    parts: range
    first: int
    node: Tensor
    in_edges: InEdges


def deliver_nodes(
    comm: Communicator, part: ReadingSlice, numbering: Numbering, runs: Runs
) -> tuple[range, int, Tensor, Tensor]:
    """Sends original ids and degrees to the owners, who then know where every list goes.
    Collective."""
    offsets, own = numbering.book.offsets, runs.of(comm.rank)
    first, last = int(offsets[own.start]), int(offsets[own.stop])
    node = torch.empty(last - first, dtype=torch.int64)
    indptr = torch.zeros(last - first + 1, dtype=torch.int64)
    for rows in own_rounds(comm, part.num_nodes, 24):
        at = slice(rows.start, rows.stop)
        columns = torch.empty(len(rows), 3, dtype=torch.int64)
        columns[:, 0] = numbering.internal[at]
        columns[:, 1] = torch.arange(part.first + rows.start, part.first + rows.stop)
        columns[:, 2] = part.in_edges.indptr[rows.start + 1 : rows.stop + 1] - part.in_edges.indptr[at]
        found = send(comm, columns, _to_ranks(numbering.owner[at], runs)).rows
        node[found[:, 0] - first] = found[:, 1]
        indptr[found[:, 0] - first + 1] = found[:, 2]
    torch.cumsum(indptr, 0, out=indptr)
    return own, first, node, indptr


def translate_sources(comm: Communicator, part: ReadingSlice, directory: Directory) -> None:
    """Overwrites the original ids of the sources by internal ids. Collective."""
    pull(comm, directory.remote(), part.in_edges.indices, out=part.in_edges.indices)


def deliver_lists(comm: Communicator, part: ReadingSlice, numbering: Numbering, runs: Runs) -> OwnNodes:
    """Sends adjacency lists to the owners of their nodes. Collective.

    A rank's nodes were read in ascending order by ranks in ascending order. So what one rank sends
    for one part is written in order, from where that rank's first node of the part has its list.
    """
    own, first, node, indptr = deliver_nodes(comm, part, numbering, runs)
    size = int(indptr[-1])
    sources, edge_ids = part.in_edges.indices, part.in_edges.explicit_edge_ids()
    indices, ids = torch.empty(size, dtype=sources.dtype), torch.empty(size, dtype=edge_ids.dtype)
    done = OwnNodes(own, first, node, InEdges(indptr, indices, ids))
    cursor = _first_slots(numbering, done, comm.size)
    wide = max(sources.dtype, edge_ids.dtype, key=lambda dtype: dtype.itemsize)
    for rows in own_rounds(comm, sources.numel(), 2 * wide.itemsize):
        at = slice(rows.start, rows.stop)
        grouping = group(part.along_edges(numbering.owner, rows), runs.parts)
        columns = torch.empty(len(rows), 2, dtype=wide)
        columns[:, 0], columns[:, 1] = grouping.apply(sources[at]), grouping.apply(edge_ids[at])
        lengths = _lengths(comm, grouping, runs)
        found = comm.exchange(columns, runs.by_rank(grouping.counts), MessageKind.PARTITION).rows
        for (rank, number), piece in zip(cursor, found.split(lengths), strict=True):
            begin = cursor[rank, number]
            end = cursor[rank, number] = begin + len(piece)
            indices[begin:end], ids[begin:end] = piece[:, 0], piece[:, 1]
    return done


def _to_ranks(owner: Tensor, runs: Runs) -> Grouping:
    """Groups rows by the ranks of their parts."""
    grouping = group(owner, runs.parts)
    return Grouping(grouping.order, runs.by_rank(grouping.counts))


def _lengths(comm: Communicator, grouping: Grouping, runs: Runs) -> list[int]:
    """Returns how many rows come for each part of this rank, by sender and part."""
    counts = torch.tensor(grouping.counts, dtype=torch.int64)
    sizes = [len(runs.of(rank)) for rank in range(comm.size)]
    lengths: list[int] = comm.exchange(counts, sizes, MessageKind.PARTITION).rows.tolist()
    return lengths


def _first_slots(numbering: Numbering, done: OwnNodes, ranks: int) -> dict[tuple[int, int], int]:
    """Returns where the rows begin that each rank sends for each part, by rank and part."""
    before = numbering.counts.cumsum(0) - numbering.counts
    return {
        (rank, part): int(
            done.in_edges.indptr[int(numbering.book.offsets[part]) - done.first + int(before[rank, part])]
        )
        for rank in range(ranks)
        for part in done.parts
    }
