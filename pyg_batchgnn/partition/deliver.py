"""Sends nodes and adjacency lists to their owners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.data import Dataset
from pyg_batchgnn.ops import InEdges, as_stored, gather_rows, rows_like
from pyg_batchgnn.partition.checks import own_share
from pyg_batchgnn.partition.move import Grouping, Remote, group, group_by_range, own_rounds, pull, send
from pyg_batchgnn.partition.numbering import Numbering, RunRows, Runs
from pyg_batchgnn.partition.reading import ReadingSlice, along_edges
from pyg_batchgnn.types import Group


@dataclass
class OwnNodes:
    """The nodes of one rank's parts and their adjacency lists."""

    parts: range  # all parts that this rank builds
    rows: list[RunRows]  # by type, the rows of its nodes in the run
    nodes: list[Tensor]  # by type, [n_t] int64, the original ids by row
    #: the in-edges of each relation by row of the target type, with explicit edge ids
    relations: list[InEdges]


def translate_sources(comm: Communicator, part: ReadingSlice, numbering: Numbering) -> None:
    """Replaces the joint ids of sources by internal ids. Collective."""
    sources = part.in_edges.indices
    pull(comm, part.remote(numbering.internal), sources, out=sources, most=part.total_edges)


def deliver_lists(comm: Communicator, part: ReadingSlice, numbering: Numbering, runs: Runs) -> OwnNodes:
    """Sends nodes and their in-edges to the owners of the nodes. Collective."""
    own, schema = runs.of(comm.rank), part.schema
    rows = [RunRows(numbering.book, own, number) for number in range(schema.num_types)]
    nodes, indptr = list[Tensor](), dict[int, Tensor]()
    for number in range(schema.num_types):
        node, ends = _deliver_nodes(comm, part, numbering, runs, rows[number], number)
        nodes.append(node)
        indptr |= ends
    places = [
        ArrivingEdges(part.in_edges, numbering.counts[:, :, target], own, rows[target], indptr[number])
        for number, target in enumerate(schema.target_types)
    ]
    deliver_edges(comm, part, numbering, runs, places)
    return OwnNodes(own, rows, nodes, [place.in_edges for place in places])


def _deliver_nodes(
    comm: Communicator, part: ReadingSlice, numbering: Numbering, runs: Runs, own: RunRows, node_type: int
) -> tuple[Tensor, dict[int, Tensor]]:
    """Sends original ids and degrees to the owners, who then know the place of each node's
    in-edges. Collective. Returns the own nodes' original ids, and by relation their indptr."""
    size, here = int(own.starts[-1]), part.rows_of(node_type)
    relations = part.schema.relations_into[node_type]
    node = torch.empty(size, dtype=torch.int64)
    indptr = {number: torch.zeros(size + 1, dtype=torch.int64) for number in relations}
    internal, owner = numbering.internal[here], numbering.owner[here]
    first = part.nodes_of(node_type).start
    most = part.book.num_nodes_of(node_type)
    for rows in own_rounds(comm, owner.numel(), 8 * (2 + len(relations)), most):
        at = slice(rows.start, rows.stop)
        columns = torch.empty(len(rows), 2 + len(relations), dtype=torch.int64)
        columns[:, 0] = internal[at]
        columns[:, 1] = torch.arange(first + rows.start, first + rows.stop)
        for column, number in enumerate(relations, start=2):
            ends = part.relations[number].indptr
            columns[:, column] = ends[rows.start + 1 : rows.stop + 1] - ends[at]
        grouping = group(owner[at], runs.parts)
        found = send(comm, columns, Grouping(grouping.order, runs.by_rank(grouping.counts))).rows
        row = own.rows(found[:, 0].contiguous())
        node[row] = found[:, 1]
        for column, number in enumerate(relations, start=2):
            indptr[number][row + 1] = found[:, column]
    for ends in indptr.values():
        torch.cumsum(ends, 0, out=ends)
    return node, indptr


class ArrivingEdges:
    """A relation's in-edges while they are received, with a row per node of the target type.
    ``counts`` [ranks, parts]: the target nodes of each part that each rank has read."""

    def __init__(self, read: InEdges, counts: Tensor, parts: range, rows: RunRows, indptr: Tensor) -> None:
        before, size, ids = counts.cumsum(0) - counts, int(indptr[-1]), read.explicit_edge_ids()
        #: by sender and part, the position of the next edge
        self.cursor = {
            (rank, part): int(indptr[int(rows.starts[at]) + int(before[rank, part])])
            for rank in range(len(counts))
            for at, part in enumerate(parts)
        }
        room = torch.empty(size, dtype=read.indices.dtype), torch.empty(size, dtype=ids.dtype)
        self.in_edges = InEdges(indptr, *room)

    def append(self, sender: int, part: int, edges: Tensor) -> None:
        """Writes the next edges [n, 2] (source, id) that a rank sent for a part."""
        begin = self.cursor[sender, part]
        end = self.cursor[sender, part] = begin + len(edges)
        self.in_edges.indices[begin:end] = edges[:, 0]
        self.in_edges.explicit_edge_ids()[begin:end] = edges[:, 1]


def deliver_edges(
    comm: Communicator, part: ReadingSlice, numbering: Numbering, runs: Runs, places: Sequence[ArrivingEdges]
) -> None:
    """Sends all relations' in-edges to the owners of the targets. Collective. Ranks in ascending
    order have read a rank's nodes in ascending order. So the edges that a rank sends for a part are
    written in order, from the in-edges of that rank's first node of the part on."""
    read, relations = part.in_edges, len(places)
    sources, edge_ids = read.indices, read.explicit_edge_ids()
    # The cell of each own list: its part times the number of relations, plus its relation.
    owner, targets = numbering.owner, enumerate(part.schema.target_types)
    cells = [owner[part.rows_of(target)] * relations + number for number, target in targets]
    cell = torch.cat([owner[:0], *cells])
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
        lengths = found.counts
        if not together:  # the rows that come for each own part, by sender, part and relation
            sizes = [len(runs.of(rank)) * relations for rank in range(comm.size)]
            counts = torch.tensor(grouping.counts, dtype=torch.int64)
            lengths = comm.exchange(counts, sizes, MessageKind.PARTITION).rows.tolist()
        every = product(range(comm.size), runs.of(comm.rank), places)
        for (sender, number, place), edges in zip(every, found.rows.split(lengths), strict=True):
            place.append(sender, number, edges)


#: The rows of an input table that one rank reads before the next rank's turn. Owners ask for
#: ascending rows, and so all ranks read at the same time.
STRIPE = 1 << 10


def deliver_rows(comm: Communicator, table: Tensor, ids: Tensor) -> Tensor:
    """Returns this rank's rows [n, ...] of a table; int8-quantised ones stay so. Collective."""
    stored, ranks = as_stored(table), comm.size
    striped = Remote(
        lambda row: group(torch.div(row, STRIPE, rounding_mode="floor").remainder_(ranks), ranks),
        lambda row: gather_rows(stored, row),
        tuple(stored.shape[1:]),
        stored.dtype,
    )
    return rows_like(table, pull(comm, striped, ids))


def deliver_splits(
    comm: Communicator, dataset: Dataset, part: ReadingSlice, numbering: Numbering, runs: Runs
) -> dict[Group, dict[str, Tensor]]:
    """Returns this rank's nodes of the splits, ascending internal ids, by group and name.
    Collective."""
    names = [(number, name) for number, nodes in enumerate(dataset.node_sets) for name in nodes.splits]
    read = [own_share(comm, dataset.node_sets[number].splits[name]) for number, name in names]
    dtype = numbering.internal.dtype
    joint = [part.nodes.of(node, number, dtype) for node, (number, _) in zip(read, names, strict=True)]
    sizes = torch.tensor([node.numel() for node in joint], dtype=torch.int64)
    rows = torch.empty(int(sizes.sum()), 2, dtype=dtype)
    most = sum(len(dataset.node_sets[number].splits[name]) for number, name in names)
    rows[:, 0] = pull(comm, part.remote(numbering.internal), torch.cat([rows[:0, 0], *joint]), most=most)
    rows[:, 1] = torch.arange(len(names)).repeat_interleave(sizes)
    bounds, came = numbering.book.part_offsets[runs.bounds], [torch.empty(0, 2, dtype=torch.int64)]
    for piece in own_rounds(comm, len(rows), rows.size(1) * rows.element_size(), most):
        sent = rows[piece.start : piece.stop]
        came.append(send(comm, sent, group_by_range(sent[:, 0].contiguous(), bounds)).rows.to(torch.int64))
    found = torch.cat(came)
    splits: dict[Group, dict[str, Tensor]] = {nodes.group: {} for nodes in dataset.node_sets}
    for at, (number, name) in enumerate(names):
        splits[dataset.node_sets[number].group][name] = found[found[:, 1] == at, 0].sort().values
    return splits
