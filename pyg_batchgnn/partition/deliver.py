"""Sends nodes and adjacency lists to their owners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition.book import PartitionBook
from pyg_batchgnn.partition.bounded import own_rounds
from pyg_batchgnn.partition.move import Grouping, group, pull, send
from pyg_batchgnn.partition.numbering import Numbering
from pyg_batchgnn.partition.part import slice_size
from pyg_batchgnn.partition.reading import ReadingSlice, along_edges


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
        """Returns where the directory slices of each rank's parts begin among the original ids of a
        type, [ranks + 1] int64."""
        return (self.bounds * slice_size(num_nodes, self.parts)).clamp(max=num_nodes)

    def by_rank(self, of_parts: Sequence[int]) -> list[int]:
        """Returns the sums over each rank's parts."""
        return [sum(of_parts[part] for part in self.of(rank)) for rank in range(self.ranks)]


@dataclass(frozen=True)
class RunRows:
    """The rows that the nodes of one type have in a run of parts: by part, then by internal id.

    Attributes:
        firsts: [parts], the internal id of each part's first node of the type.
        starts: [parts + 1] int64, where the rows of each part begin.
    """

    firsts: Tensor
    starts: Tensor

    @classmethod
    def of(cls, book: PartitionBook, parts: range, node_type: int) -> RunRows:
        """Returns the rows of a type in a run of parts."""
        firsts = [book.nodes_of(part, node_type).start for part in parts]
        sizes = book.sizes[parts.start : parts.stop, node_type]
        starts = torch.zeros(len(parts) + 1, dtype=torch.int64)
        torch.cumsum(sizes, 0, out=starts[1:])
        return cls(torch.tensor(firsts, dtype=torch.int64), starts)

    def rows(self, internal: Tensor) -> Tensor:
        """Returns the rows of internal ids [n], which are of the type and of the run."""
        part = torch.searchsorted(self.firsts, internal, right=True) - 1
        return internal - (self.firsts - self.starts[:-1])[part]


@dataclass
class OwnNodes:
    """The nodes of one rank's parts and their adjacency lists.

    Attributes:
        parts: all parts that this rank builds.
        rows: by type, the rows of its nodes in the run.
        nodes: by type, [n_t] int64, the original ids by row.
        relations: the in-edges of each relation by row of the target type, with explicit edge ids.
    """

    parts: range
    rows: list[RunRows]
    nodes: list[Tensor]
    relations: list[InEdges]


def translate_sources(comm: Communicator, part: ReadingSlice, numbering: Numbering) -> None:
    """Overwrites the joint ids of the sources by internal ids. Collective."""
    sources = part.in_edges.indices
    pull(comm, part.remote(numbering.internal), sources, out=sources)


def deliver_lists(comm: Communicator, part: ReadingSlice, numbering: Numbering, runs: Runs) -> OwnNodes:
    """Sends nodes and adjacency lists to the owners of the nodes. Collective."""
    own, schema = runs.of(comm.rank), part.schema
    rows = [RunRows.of(numbering.book, own, number) for number in range(schema.num_types)]
    nodes, indptr = list[Tensor](), dict[int, Tensor]()
    for number in range(schema.num_types):
        node, ends = _deliver_nodes(comm, part, numbering, runs, rows[number], number)
        nodes.append(node)
        indptr |= ends
    places = [
        _Places.of(
            part.in_edges,
            indptr[number],
            _first_slots(numbering.counts[:, :, target], own, rows[target], indptr[number]),
        )
        for number, target in enumerate(schema.target_types)
    ]
    _deliver_edges(comm, part, numbering, runs, places)
    return OwnNodes(own, rows, nodes, [place.in_edges for place in places])


def _deliver_nodes(
    comm: Communicator, part: ReadingSlice, numbering: Numbering, runs: Runs, own: RunRows, node_type: int
) -> tuple[Tensor, dict[int, Tensor]]:
    """Sends original ids and degrees to the owners, who then know where every list goes.
    Collective.

    Returns:
        The original ids of this rank's nodes of the type, and by relation into it where each
        node's in-edges begin.
    """
    size, here = int(own.starts[-1]), part.rows_of(node_type)
    relations = part.schema.relations_into[node_type]
    node = torch.empty(size, dtype=torch.int64)
    indptr = {number: torch.zeros(size + 1, dtype=torch.int64) for number in relations}
    internal, owner = numbering.internal[here], numbering.owner[here]
    first = part.nodes_of(node_type).start
    for rows in own_rounds(comm, owner.numel(), 8 * (2 + len(relations))):
        at = slice(rows.start, rows.stop)
        columns = torch.empty(len(rows), 2 + len(relations), dtype=torch.int64)
        columns[:, 0] = internal[at]
        columns[:, 1] = torch.arange(first + rows.start, first + rows.stop)
        for column, number in enumerate(relations, start=2):
            ends = part.relations[number].indptr
            columns[:, column] = ends[rows.start + 1 : rows.stop + 1] - ends[at]
        found = send(comm, columns, _to_ranks(owner[at], runs)).rows
        row = own.rows(found[:, 0].contiguous())
        node[row] = found[:, 1]
        for column, number in enumerate(relations, start=2):
            indptr[number][row + 1] = found[:, column]
    for ends in indptr.values():
        torch.cumsum(ends, 0, out=ends)
    return node, indptr


@dataclass(frozen=True)
class _Places:
    """The in-edges of a relation while they arrive.

    Attributes:
        in_edges: one row per node of the target type in the run.
        cursor: by sender and part, the position of the next edge.
    """

    in_edges: InEdges
    cursor: dict[tuple[int, int], int]

    @classmethod
    def of(cls, read: InEdges, indptr: Tensor, cursor: dict[tuple[int, int], int]) -> _Places:
        """Makes room for edges like those that were read."""
        size, ids = int(indptr[-1]), read.explicit_edge_ids()
        room = torch.empty(size, dtype=read.indices.dtype), torch.empty(size, dtype=ids.dtype)
        return cls(InEdges(indptr, *room), cursor)

    def append(self, sender: int, part: int, edges: Tensor) -> None:
        """Writes the next edges [n, 2] that a rank sent for a part: sources and ids."""
        begin = self.cursor[sender, part]
        end = self.cursor[sender, part] = begin + len(edges)
        self.in_edges.indices[begin:end] = edges[:, 0]
        self.in_edges.explicit_edge_ids()[begin:end] = edges[:, 1]


def _deliver_edges(
    comm: Communicator, part: ReadingSlice, numbering: Numbering, runs: Runs, places: Sequence[_Places]
) -> None:
    """Sends the adjacency lists of all relations to the owners of their nodes. Collective.

    A rank's nodes were read in ascending order by ranks in ascending order. So what one rank sends
    for one part and relation is written in order, from where that rank's first node of the part has
    its list.
    """
    read, relations = part.in_edges, len(places)
    sources, edge_ids = read.indices, read.explicit_edge_ids()
    relation = torch.arange(relations).repeat_interleave(part.lists.book.sizes[part.rank])
    cell = part.by_list(numbering.owner) * relations + relation.to(numbering.owner.dtype)
    wide = max(sources.dtype, edge_ids.dtype, key=lambda dtype: dtype.itemsize)
    for rows in own_rounds(comm, sources.numel(), 2 * wide.itemsize):
        at = slice(rows.start, rows.stop)
        grouping = group(along_edges(read, cell, rows), runs.parts * relations)
        columns = torch.empty(len(rows), 2, dtype=wide)
        columns[:, 0], columns[:, 1] = grouping.apply(sources[at]), grouping.apply(edge_ids[at])
        lengths = _lengths(comm, grouping, runs, relations)
        of_ranks = runs.by_rank(torch.tensor(grouping.counts).view(runs.parts, -1).sum(1).tolist())
        found = comm.exchange(columns, of_ranks, MessageKind.PARTITION).rows
        cells = product(range(comm.size), runs.of(comm.rank), places)
        for (sender, number, place), edges in zip(cells, found.split(lengths), strict=True):
            place.append(sender, number, edges)


def _to_ranks(owner: Tensor, runs: Runs) -> Grouping:
    """Groups rows by the ranks of their parts."""
    grouping = group(owner, runs.parts)
    return Grouping(grouping.order, runs.by_rank(grouping.counts))


def _lengths(comm: Communicator, grouping: Grouping, runs: Runs, relations: int) -> list[int]:
    """Returns how many rows come for each part of this rank, by sender, part and relation."""
    counts = torch.tensor(grouping.counts, dtype=torch.int64)
    sizes = [len(runs.of(rank)) * relations for rank in range(comm.size)]
    lengths: list[int] = comm.exchange(counts, sizes, MessageKind.PARTITION).rows.tolist()
    return lengths


def _first_slots(counts: Tensor, parts: range, own: RunRows, indptr: Tensor) -> dict[tuple[int, int], int]:
    """Returns where the rows begin that each rank sends for each part, by rank and part.

    Args:
        counts: [ranks, parts], the target nodes of each part that each rank has read.
        parts: the parts of this rank.
        own: the rows of the target type.
        indptr: where each row's in-edges begin.
    """
    before = counts.cumsum(0) - counts
    return {
        (rank, part): int(indptr[int(own.starts[at]) + int(before[rank, part])])
        for rank in range(len(counts))
        for at, part in enumerate(parts)
    }
