"""The topology while it is read: each rank has the in-edges of a range of original ids."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.data import Dataset
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition.bounded import shared_rounds
from pyg_batchgnn.partition.checks import outside, refuse_outside
from pyg_batchgnn.partition.move import Grouping, group_by_range, send

#: The ranges begin at multiples of a power of two, so that a histogram of at most this length
#: balances them.
BUCKETS = 1 << 16


@dataclass
class ReadingSlice:
    """The nodes [first, first + n) by original id, and their in-edges.

    Attributes:
        bounds: [ranks + 1] int64, where each rank's range begins.
        rank: the rank of this process.
        in_edges: the in-edges of these nodes, with explicit edge ids, ascending for each node. The
            sources are original ids at first.
    """

    bounds: Tensor
    rank: int
    in_edges: InEdges

    @property
    def first(self) -> int:
        return int(self.bounds[self.rank])

    @property
    def num_nodes(self) -> int:
        return int(self.bounds[self.rank + 1]) - self.first

    def node(self) -> Tensor:
        """Returns the original ids, [n] int64."""
        return torch.arange(self.first, self.first + self.num_nodes)

    def group(self, node: Tensor) -> Grouping:
        """Groups original ids [n] by the rank whose slice has them."""
        return group_by_range(node, self.bounds)

    def along_edges(self, values: Tensor, edges: range) -> Tensor:
        """Returns, for each of some edges, the value of its destination, [len(edges)]; values [n]
        are by node."""
        if not len(edges):
            return values[:0]
        first = int(torch.searchsorted(self.in_edges.indptr, edges.start, right=True)) - 1
        last = int(torch.searchsorted(self.in_edges.indptr, edges.stop))
        ends = self.in_edges.indptr[first : last + 1].clamp(edges.start, edges.stop)
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
    nodes, edges = dataset.num_nodes, dataset.num_edges
    bounds = _balanced_bounds(dataset, comm)
    first, last = int(bounds[comm.rank]), int(bounds[comm.rank + 1])
    indptr = torch.zeros(last - first + 1, dtype=torch.int64)
    for rows in shared_rounds(comm, edges, row_bytes):
        destination = dataset.edge_index[1, rows.start : rows.stop].to(ops.id_dtype(nodes)).contiguous()
        found = send(comm, destination, group_by_range(destination, bounds)).rows
        ops.count_values(found, first, indptr[1:])
    torch.cumsum(indptr, 0, out=indptr)
    size = int(indptr[-1])
    indices, edge_ids = (torch.empty(size, dtype=ops.id_dtype(count)) for count in (nodes, edges))
    cursor = indptr[:-1].clone()
    for array in (indices, edge_ids):  # written to at random
        ops.advise_huge_pages(array)
    for rows in shared_rounds(comm, edges, row_bytes):
        columns = _columns(dataset, rows)
        found = send(comm, columns, group_by_range(columns[:, 0].contiguous(), bounds)).rows
        ops.place_edges(found, first, cursor, indices, edge_ids)
    return ReadingSlice(bounds, comm.rank, InEdges(indptr, indices, edge_ids))


def _columns(dataset: Dataset, rows: range) -> Tensor:
    """Returns destination, source and id of edges, [n, 3], in a type that holds all of them."""
    columns = torch.empty(len(rows), 3, dtype=ops.id_dtype(max(dataset.num_nodes, dataset.num_edges)))
    columns[:, 0] = dataset.edge_index[1, rows.start : rows.stop]
    columns[:, 1] = dataset.edge_index[0, rows.start : rows.stop]
    columns[:, 2] = torch.arange(rows.start, rows.stop)
    return columns


def _balanced_bounds(dataset: Dataset, comm: Communicator) -> Tensor:
    """Returns ranges of original ids with about as many edges and nodes each."""
    nodes, edges = dataset.num_nodes, dataset.num_edges
    shift = max(0, (nodes // BUCKETS).bit_length())
    width = 1 << shift
    weight = torch.zeros(-(-nodes // width) + 1, dtype=torch.int64)
    problem = ""
    for rows in shared_rounds(comm, edges, 12):
        source, destination = (ids[rows.start : rows.stop].contiguous() for ids in dataset.edge_index)
        problem = problem or outside(source, nodes) or outside(destination, nodes)
        if not problem:
            ops.count_values(destination >> shift, 0, weight)
    refuse_outside(comm, dataset, "edge_index", problem)
    comm.all_reduce(weight, MessageKind.PARTITION)
    weight[:-1] += width
    before = torch.cat([torch.zeros(1, dtype=torch.int64), weight[:-1].cumsum(0)])
    target = int(before[-1]) * torch.arange(comm.size + 1) // comm.size
    bounds = torch.searchsorted(before, target) * width
    bounds[0], bounds[-1] = 0, nodes
    return bounds.clamp_(max=nodes)
