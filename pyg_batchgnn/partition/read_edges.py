"""Reads the edges of a data set that every rank can read, those of all relations together."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.data import Dataset, edge_array
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition.bounded import shared_rounds
from pyg_batchgnn.partition.checks import outside, refuse_outside
from pyg_batchgnn.partition.joint_ids import JointIds
from pyg_batchgnn.partition.move import group_by_range, send
from pyg_batchgnn.partition.reading import ReadingSlice

#: The ranges begin at multiples of a power of two, so that a histogram of at most this length
#: balances them.
BUCKETS = 1 << 16
#: The bytes of an edge in an exchange, by which rounds are sized.
_EDGE_BYTES = 12


def read_slice(dataset: Dataset, comm: Communicator) -> ReadingSlice:
    """Reads the edges once to balance, once to count and once to place them. Collective.

    Args:
        dataset: the same on every rank; each reads some of its edges.
        comm: the communicator of all ranks.

    Raises:
        DatasetError: on every rank, where an edge has a node id outside [0, N).
    """
    bounds, schema = _balanced_bounds(dataset, comm), dataset.schema
    nodes = JointIds(bounds)
    # A graph without relations has one empty group of lists.
    lists = JointIds([bounds[target] for target in schema.target_types] or [torch.zeros_like(bounds[0])])
    in_edges = _Reader(dataset, comm, nodes, lists).read()
    total = sum(edges.num_edges for edges in dataset.edge_sets)
    return ReadingSlice(schema, nodes, lists, comm.rank, in_edges, total)


class _Reader:
    """Reads the edges of all relations in rounds. The relations follow each other."""

    def __init__(self, dataset: Dataset, comm: Communicator, nodes: JointIds, lists: JointIds) -> None:
        self._dataset, self._comm, self._nodes, self._lists = dataset, comm, nodes, lists
        self._sizes = [edges.num_edges for edges in dataset.edge_sets]
        self._ids = ops.id_dtype(dataset.num_nodes)
        self._edge_ids = ops.id_dtype(max(self._sizes, default=0))
        self._list_ids = ops.id_dtype(lists.book.num_nodes)

    def read(self) -> InEdges:
        """Returns the in-edges of this rank, one row per list. Collective."""
        comm, own = self._comm, self._lists.book.nodes_of(self._comm.rank)
        indptr = torch.zeros(len(own) + 1, dtype=torch.int64)
        for rows in shared_rounds(comm, sum(self._sizes), _EDGE_BYTES):
            target = self._targets(rows)
            found = send(comm, target, group_by_range(target, self._lists.rank_bounds)).rows
            ops.count_values(found, own.start, indptr[1:])
        torch.cumsum(indptr, 0, out=indptr)
        size, cursor = int(indptr[-1]), indptr[:-1].clone()
        indices, edge_ids = torch.empty(size, dtype=self._ids), torch.empty(size, dtype=self._edge_ids)
        for array in (indices, edge_ids):  # written to at random
            ops.advise_huge_pages(array)
        for rows in shared_rounds(comm, sum(self._sizes), _EDGE_BYTES):
            columns = self._columns(rows)
            target = columns[:, 0].contiguous()
            found = send(comm, columns, group_by_range(target, self._lists.rank_bounds)).rows
            ops.place_edges(found, own.start, cursor, indices, edge_ids)
        return InEdges(indptr, indices, edge_ids)

    def _targets(self, rows: range) -> Tensor:
        """Returns the lists that some edges belong to, [len(rows)]."""
        target = torch.empty(len(rows), dtype=self._list_ids)
        for number, edges, at in pieces_of(self._sizes, rows):
            ids = self._dataset.edge_sets[number].edge_index[1, edges.start : edges.stop]
            target[at] = self._lists.of(ids, number, self._list_ids)
        return target

    def _columns(self, rows: range) -> Tensor:
        """Returns list, source and id of some edges, [len(rows), 3], in a type that holds them."""
        wide = max(self._ids, self._edge_ids, self._list_ids, key=lambda dtype: dtype.itemsize)
        columns = torch.empty(len(rows), 3, dtype=wide)
        columns[:, 0] = self._targets(rows)
        for number, edges, at in pieces_of(self._sizes, rows):
            ids = self._dataset.edge_sets[number].edge_index[0, edges.start : edges.stop]
            columns[at, 1] = self._nodes.of(ids, self._dataset.schema.source_types[number], wide)
            columns[at, 2] = torch.arange(edges.start, edges.stop)
        return columns


def pieces_of(sizes: list[int], rows: range) -> Iterator[tuple[int, range, slice]]:
    """Cuts a range of the edges of all relations where a relation ends.

    Args:
        sizes: the number of edges of each relation. The relations follow each other.
        rows: the range.

    Yields:
        The number of a relation, a range of its edges, and where these are among ``rows``.
    """
    begin = 0
    for number, size in enumerate(sizes):
        first, last = max(rows.start, begin), min(rows.stop, begin + size)
        if first < last:
            yield number, range(first - begin, last - begin), slice(first - rows.start, last - rows.start)
        begin += size


def _balanced_bounds(dataset: Dataset, comm: Communicator) -> list[Tensor]:
    """Returns, by node type, ranges of original ids with about as many in-edges and nodes each, and
    checks the ids of all edges. Collective."""
    counts = [nodes.num_nodes for nodes in dataset.node_sets]
    shifts = [max(0, (count // BUCKETS).bit_length()) for count in counts]
    lengths = [-(-count // (1 << shift)) + 1 for count, shift in zip(counts, shifts, strict=True)]
    weights = torch.zeros(sum(lengths), dtype=torch.int64)
    of_types = list(weights.split(lengths))
    problems = dict[str, str]()
    for number, target in enumerate(dataset.schema.target_types):
        problem = _count_targets(dataset, comm, number, shifts[target], of_types[target])
        problems[edge_array("edge_index", dataset.edge_sets[number].group)] = problem
    refuse_outside(comm, dataset, problems)
    comm.all_reduce(weights, MessageKind.PARTITION)
    return [_even_bounds(*one, comm.size) for one in zip(of_types, shifts, counts, strict=True)]


def _count_targets(dataset: Dataset, comm: Communicator, relation: int, shift: int, weight: Tensor) -> str:
    """Adds the in-edges of each range of targets to ``weight``. Returns what is wrong with the
    ids."""
    edges, schema = dataset.edge_sets[relation], dataset.schema
    ends = [schema.source_types[relation], schema.target_types[relation]]
    nodes = [dataset.node_sets[number].num_nodes for number in ends]
    for rows in shared_rounds(comm, edges.num_edges, _EDGE_BYTES):
        source, destination = (ids[rows.start : rows.stop].contiguous() for ids in edges.edge_index)
        problem = outside(source, nodes[0]) or outside(destination, nodes[1])
        if problem:
            return problem
        ops.count_values(destination >> shift, 0, weight)
    return ""


def _even_bounds(edges: Tensor, shift: int, nodes: int, ranks: int) -> Tensor:
    """Returns ranges of a type's ids with about as much to do for each rank.

    Args:
        edges: [buckets + 1], the in-edges of each bucket of ``1 << shift`` ids.
        shift: see there.
        nodes: the number of ids.
        ranks: the number of ranges.
    """
    weight = edges[:-1] + (1 << shift)
    before = torch.cat([torch.zeros(1, dtype=torch.int64), weight.cumsum(0)])
    target = int(before[-1]) * torch.arange(ranks + 1) // ranks
    bounds = torch.searchsorted(before, target) * (1 << shift)
    bounds[0], bounds[-1] = 0, nodes
    return bounds.clamp_(max=nodes)
