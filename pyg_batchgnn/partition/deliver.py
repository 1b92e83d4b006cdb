"""Sends nodes and adjacency lists to their owners."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition.bounded import own_rounds
from pyg_batchgnn.partition.deliver_edges import ArrivingEdges, deliver_edges
from pyg_batchgnn.partition.move import Grouping, group, pull, send
from pyg_batchgnn.partition.numbering import Numbering
from pyg_batchgnn.partition.reading import ReadingSlice
from pyg_batchgnn.partition.runs import RunRows, Runs


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
    pull(comm, part.remote(numbering.internal), sources, out=sources, most=part.total_edges)


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
        ArrivingEdges.of(part.in_edges, numbering.counts[:, :, target], own, rows[target], indptr[number])
        for number, target in enumerate(schema.target_types)
    ]
    deliver_edges(comm, part, numbering, runs, places)
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
    most = part.book.num_nodes_of(node_type)
    for rows in own_rounds(comm, owner.numel(), 8 * (2 + len(relations)), most):
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


def _to_ranks(owner: Tensor, runs: Runs) -> Grouping:
    """Groups rows by the ranks of their parts."""
    grouping = group(owner, runs.parts)
    return Grouping(grouping.order, runs.by_rank(grouping.counts))
