"""Sends the adjacency lists of all relations to the owners of their nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition.bounded import own_rounds
from pyg_batchgnn.partition.move import Grouping, group
from pyg_batchgnn.partition.numbering import Numbering
from pyg_batchgnn.partition.reading import ReadingSlice, along_edges
from pyg_batchgnn.partition.runs import RunRows, Runs


@dataclass(frozen=True)
class ArrivingEdges:
    """The in-edges of a relation while they arrive.

    Attributes:
        in_edges: one row per node of the target type in the run.
        cursor: by sender and part, the position of the next edge.
    """

    in_edges: InEdges
    cursor: dict[tuple[int, int], int]

    @classmethod
    def of(cls, read: InEdges, counts: Tensor, parts: range, rows: RunRows, indptr: Tensor) -> ArrivingEdges:
        """Makes room for edges like those that were read.

        Args:
            read: the edges that were read.
            counts: [ranks, parts], the target nodes of each part that each rank has read.
            parts: the parts of this rank.
            rows: the rows of the target type.
            indptr: where each row's in-edges begin.
        """
        before, size, ids = counts.cumsum(0) - counts, int(indptr[-1]), read.explicit_edge_ids()
        cursor = {
            (rank, part): int(indptr[int(rows.starts[at]) + int(before[rank, part])])
            for rank in range(len(counts))
            for at, part in enumerate(parts)
        }
        room = torch.empty(size, dtype=read.indices.dtype), torch.empty(size, dtype=ids.dtype)
        return cls(InEdges(indptr, *room), cursor)

    def append(self, sender: int, part: int, edges: Tensor) -> None:
        """Writes the next edges [n, 2] that a rank sent for a part: sources and ids."""
        begin = self.cursor[sender, part]
        end = self.cursor[sender, part] = begin + len(edges)
        self.in_edges.indices[begin:end] = edges[:, 0]
        self.in_edges.explicit_edge_ids()[begin:end] = edges[:, 1]


def deliver_edges(
    comm: Communicator, part: ReadingSlice, numbering: Numbering, runs: Runs, places: Sequence[ArrivingEdges]
) -> None:
    """Sends the adjacency lists of all relations to the owners of their nodes. Collective.

    A rank's nodes were read in ascending order by ranks in ascending order. So what one rank sends
    for one part and relation is written in order, from where that rank's first node of the part has
    its list.
    """
    read, relations = part.in_edges, len(places)
    sources, edge_ids = read.indices, read.explicit_edge_ids()
    cell = _cells(part, numbering.owner)
    wide = max(sources.dtype, edge_ids.dtype, key=lambda dtype: dtype.itemsize)
    for rows in own_rounds(comm, sources.numel(), 2 * wide.itemsize, part.total_edges):
        at = slice(rows.start, rows.stop)
        grouping = group(along_edges(read, cell, rows), runs.parts * relations)
        columns = torch.empty(len(rows), 2, dtype=wide)
        columns[:, 0], columns[:, 1] = grouping.apply(sources[at]), grouping.apply(edge_ids[at])
        of_ranks = runs.by_rank(torch.tensor(grouping.counts).view(runs.parts, -1).sum(1).tolist())
        found = comm.exchange(columns, of_ranks, MessageKind.PARTITION)
        # Where a rank has one part and one relation, all that a sender sends it is for these.
        together = runs.parts == comm.size and relations == 1
        lengths = found.counts if together else _lengths(comm, grouping, runs, relations)
        cells = product(range(comm.size), runs.of(comm.rank), places)
        for (sender, number, place), edges in zip(cells, found.rows.split(lengths), strict=True):
            place.append(sender, number, edges)


def _cells(part: ReadingSlice, owner: Tensor) -> Tensor:
    """Returns the cell of each list of this rank: its part times the number of relations, plus the
    number of its relation; owner [n] is by node."""
    schema = part.schema
    cells = [
        owner[part.rows_of(target)] * schema.num_relations + number
        for number, target in enumerate(schema.target_types)
    ]
    return torch.cat([owner[:0], *cells])


def _lengths(comm: Communicator, grouping: Grouping, runs: Runs, relations: int) -> list[int]:
    """Returns how many rows come for each part of this rank, by sender, part and relation."""
    counts = torch.tensor(grouping.counts, dtype=torch.int64)
    sizes = [len(runs.of(rank)) * relations for rank in range(comm.size)]
    lengths: list[int] = comm.exchange(counts, sizes, MessageKind.PARTITION).rows.tolist()
    return lengths
