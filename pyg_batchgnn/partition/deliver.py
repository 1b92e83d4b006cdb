"""Sends nodes, adjacency lists, attributes and splits to their owners."""

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
    """The nodes of the parts that one rank builds, and their adjacency lists."""

    parts: range  # the parts
    rows: list[RunRows]  # by type: the rows of the nodes
    nodes: list[Tensor]  # by type: [n_t] int64, the original id of each row
    #: by relation: in-edges, a row per node of the target type, with explicit edge ids
    relations: list[InEdges]


def translate_sources(comm: Communicator, part: ReadingSlice, numbering: Numbering) -> None:
    """Overwrites the sources that were read, joint ids, by internal ids. Collective."""
    sources = part.in_edges.indices
    pull(comm, part.remote(numbering.internal), sources, out=sources, most=part.total_edges)


def deliver_lists(comm: Communicator, part: ReadingSlice, numbering: Numbering, runs: Runs) -> OwnNodes:
    """Sends nodes and adjacency lists to the nodes' owners. Collective. Returns this rank's."""
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
    """Sends original ids and degrees to the owners, who then know where each list goes. Collective.
    Returns the original ids of this rank's nodes, and by relation their indptr."""
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
    """The in-edges of a relation while they arrive: a row per node of the target type, in the
    dtypes as read. ``counts``: [ranks, parts], the target nodes of each part that each rank has
    read."""

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
        """Writes the next edges that a rank sent for a part, [n, 2]: source and edge id."""
        begin = self.cursor[sender, part]
        end = self.cursor[sender, part] = begin + len(edges)
        self.in_edges.indices[begin:end] = edges[:, 0]
        self.in_edges.explicit_edge_ids()[begin:end] = edges[:, 1]


def deliver_edges(
    comm: Communicator, part: ReadingSlice, numbering: Numbering, runs: Runs, places: Sequence[ArrivingEdges]
) -> None:
    """Sends the adjacency lists of all relations to the owners of their nodes. Collective. Ranks
    have read nodes in ascending order, so what a rank sends for a part and relation is written in
    order, from the list of that rank's first node of the part."""
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


#: The rows of a table that one rank reads before it is the next rank's turn. Owners ask for
#: ascending rows, so all ranks read at the same time.
STRIPE = 1 << 10


def deliver_rows(comm: Communicator, table: Tensor, ids: Tensor) -> Tensor:
    """Returns the rows ``ids`` of a table, [n, ...]; int8 codes stay codes. Collective."""
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
    """Returns the internal ids of this rank's nodes in each split, ascending. Collective."""
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
