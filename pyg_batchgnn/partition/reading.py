"""The topology while it is read: each rank has the in-edges of a range of original ids of each node
type."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.data import Dataset, EdgeSet, Schema, edge_array
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition.book import PartitionBook
from pyg_batchgnn.partition.bounded import shared_rounds
from pyg_batchgnn.partition.checks import outside, refuse_outside
from pyg_batchgnn.partition.move import Grouping, group_by_range, send

#: The ranges begin at multiples of a power of two, so that a histogram of at most this length
#: balances them.
BUCKETS = 1 << 16


@dataclass
class ReadingSlice:
    """The nodes that this rank has read, and their in-edges.

    Attributes:
        schema: the node types and the relations.
        bounds: by node type, [ranks + 1] int64, where each rank's range of original ids begins.
        rank: the rank of this process.
        relations: the in-edges of each relation, with explicit edge ids, ascending for each node.
            There is one row per node of the target type's range. The sources are original ids at
            first.
    """

    schema: Schema
    bounds: list[Tensor]
    rank: int
    relations: list[InEdges]

    @cached_property
    def book(self) -> PartitionBook:
        """The ranges of all ranks as a book: its ids are ordered by rank, type and original id."""
        sizes = torch.stack([bounds.diff() for bounds in self.bounds], dim=1)
        return PartitionBook([0, *sizes.flatten().cumsum(0).tolist()], len(self.bounds))

    @property
    def num_nodes(self) -> int:
        """The number of nodes of all types."""
        return len(self.book.nodes_of(self.rank))

    def nodes_of(self, node_type: int) -> range:
        """Returns the original ids of this rank's nodes of a type, given by number."""
        bounds = self.bounds[node_type]
        return range(int(bounds[self.rank]), int(bounds[self.rank + 1]))

    def rows_of(self, node_type: int) -> slice:
        """Returns where the nodes of a type are among this rank's nodes of all types."""
        own, first = self.book.nodes_of(self.rank, node_type), self.book.nodes_of(self.rank).start
        return slice(own.start - first, own.stop - first)

    def group(self, node: Tensor, node_type: int) -> Grouping:
        """Groups original ids [n] of a type by the rank that has read them."""
        return group_by_range(node, self.bounds[node_type])

    def degrees(self, node_type: int) -> Tensor:
        """Returns the number of in-edges of this rank's nodes of a type, in all relations."""
        found = torch.zeros(len(self.nodes_of(node_type)), dtype=torch.int64)
        for number in self.schema.relations_into[node_type]:
            found += self.relations[number].degrees
        return found


def along_edges(in_edges: InEdges, values: Tensor, edges: range) -> Tensor:
    """Returns, for each of some edges, the value of its destination, [len(edges)]; values [n] are
    by destination."""
    if not len(edges):
        return values[:0]
    first = int(torch.searchsorted(in_edges.indptr, edges.start, right=True)) - 1
    last = int(torch.searchsorted(in_edges.indptr, edges.stop))
    ends = in_edges.indptr[first : last + 1].clamp(edges.start, edges.stop)
    return values[first:last].repeat_interleave(ends[1:] - ends[:-1])


def read_slice(dataset: Dataset, comm: Communicator, row_bytes: int = 12) -> ReadingSlice:
    """Reads the edges once to balance, once to count and once to place them. Collective.

    Args:
        dataset: the same on every rank; each reads some of its edges.
        comm: the communicator of all ranks.
        row_bytes: the bytes of one edge in an exchange, by which rounds are sized.

    Raises:
        DatasetError: on every rank, where an edge has a node id outside [0, N).
    """
    schema = dataset.schema
    bounds = [_balanced_bounds(dataset, comm, number) for number in range(schema.num_types)]
    wide = ops.id_dtype(dataset.num_nodes)
    relations = [
        _read_relation(edges, bounds[target], wide, comm, row_bytes)
        for edges, target in zip(dataset.edge_sets, schema.target_types, strict=True)
    ]
    return ReadingSlice(schema, bounds, comm.rank, relations)


def _read_relation(
    edge_set: EdgeSet, bounds: Tensor, ids: torch.dtype, comm: Communicator, row_bytes: int
) -> InEdges:
    """Returns the in-edges of this rank's range of targets. ``ids``: the type of all node ids."""
    edges, (first, last) = edge_set.num_edges, bounds[comm.rank : comm.rank + 2].tolist()
    indptr = torch.zeros(last - first + 1, dtype=torch.int64)
    for rows in shared_rounds(comm, edges, row_bytes):
        destination = edge_set.edge_index[1, rows.start : rows.stop].to(ids).contiguous()
        found = send(comm, destination, group_by_range(destination, bounds)).rows
        ops.count_values(found, first, indptr[1:])
    torch.cumsum(indptr, 0, out=indptr)
    size = int(indptr[-1])
    indices, edge_ids = torch.empty(size, dtype=ids), torch.empty(size, dtype=ops.id_dtype(edges))
    cursor = indptr[:-1].clone()
    for array in (indices, edge_ids):  # written to at random
        ops.advise_huge_pages(array)
    words = max(ids, edge_ids.dtype, key=lambda dtype: dtype.itemsize)
    for rows in shared_rounds(comm, edges, row_bytes):
        columns = _columns(edge_set, rows, words)
        found = send(comm, columns, group_by_range(columns[:, 0].contiguous(), bounds)).rows
        ops.place_edges(found, first, cursor, indices, edge_ids)
    return InEdges(indptr, indices, edge_ids)


def _columns(edge_set: EdgeSet, rows: range, words: torch.dtype) -> Tensor:
    """Returns destination, source and id of edges, [n, 3], in a type that holds all of them."""
    columns = torch.empty(len(rows), 3, dtype=words)
    columns[:, 0] = edge_set.edge_index[1, rows.start : rows.stop]
    columns[:, 1] = edge_set.edge_index[0, rows.start : rows.stop]
    columns[:, 2] = torch.arange(rows.start, rows.stop)
    return columns


def _balanced_bounds(dataset: Dataset, comm: Communicator, node_type: int) -> Tensor:
    """Returns ranges of original ids of a type with about as many in-edges and nodes each."""
    nodes = dataset.node_sets[node_type].num_nodes
    shift = max(0, (nodes // BUCKETS).bit_length())
    width = 1 << shift
    weight = torch.zeros(-(-nodes // width) + 1, dtype=torch.int64)
    for number in dataset.schema.relations_into[node_type]:
        _count_targets(dataset, comm, number, shift, weight)
    comm.all_reduce(weight, MessageKind.PARTITION)
    weight[:-1] += width
    before = torch.cat([torch.zeros(1, dtype=torch.int64), weight[:-1].cumsum(0)])
    target = int(before[-1]) * torch.arange(comm.size + 1) // comm.size
    bounds = torch.searchsorted(before, target) * width
    bounds[0], bounds[-1] = 0, nodes
    return bounds.clamp_(max=nodes)


def _count_targets(dataset: Dataset, comm: Communicator, relation: int, shift: int, weight: Tensor) -> None:
    """Adds the in-edges of each range of targets to ``weight``, after checking ids. Collective."""
    edges, schema = dataset.edge_sets[relation], dataset.schema
    ends = [schema.source_types[relation], schema.target_types[relation]]
    nodes = [dataset.node_sets[number].num_nodes for number in ends]
    problem = ""
    for rows in shared_rounds(comm, edges.num_edges, 12):
        source, destination = (ids[rows.start : rows.stop].contiguous() for ids in edges.edge_index)
        problem = problem or outside(source, nodes[0]) or outside(destination, nodes[1])
        if not problem:
            ops.count_values(destination >> shift, 0, weight)
    refuse_outside(comm, dataset, edge_array("edge_index", edges.group), problem)
