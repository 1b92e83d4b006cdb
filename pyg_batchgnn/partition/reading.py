"""The edges while they are read: each rank has those into a range of ids of each node type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.data import Dataset, edge_array
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition.book import PartitionBook
from pyg_batchgnn.partition.checks import outside, refuse_outside
from pyg_batchgnn.partition.move import Grouping, Remote, group_by_range, send, shared_rounds
from pyg_batchgnn.types import Schema


@dataclass
class ReadingSlice:
    """The nodes that this rank has read, a range of each type, and their in-edges."""

    schema: Schema  # node types and relations
    nodes: JointIds  # the joint ids of nodes
    lists: JointIds  # the joint ids of adjacency lists, one per relation and target node
    rank: int  # this rank
    #: one row per list of this rank, with explicit edge ids, ascending in each list. Sources are
    #: joint ids of nodes at first
    in_edges: InEdges
    total_edges: int  # edges of all ranks and relations

    @property
    def book(self) -> PartitionBook:
        """The ranges of all ranks as a book; its ids are the joint ids of nodes."""
        return self.nodes.book

    @property
    def num_nodes(self) -> int:
        return len(self.book.nodes_of(self.rank))

    @cached_property
    def relations(self) -> list[InEdges]:
        found, first = [], self.lists.book.nodes_of(self.rank).start
        for number in range(self.schema.num_relations):
            lists = self.lists.book.nodes_of(self.rank, number)
            rows = range(lists.start - first, lists.stop - first)
            edges = self.in_edges.edges(rows)
            at = slice(edges.start, edges.stop)
            indptr = self.in_edges.indptr[rows.start : rows.stop + 1]
            if edges.start:
                indptr = indptr - edges.start
            found.append(InEdges(indptr, self.in_edges.indices[at], self.in_edges.explicit_edge_ids()[at]))
        return found

    def nodes_of(self, node_type: int) -> range:
        """Returns the original ids of this rank's nodes of a type. ``node_type``: its index."""
        bounds = self.nodes.bounds[node_type]
        return range(int(bounds[self.rank]), int(bounds[self.rank + 1]))

    def rows_of(self, node_type: int) -> slice:
        own, first = self.book.nodes_of(self.rank, node_type), self.book.nodes_of(self.rank).start
        return slice(own.start - first, own.stop - first)

    def group(self, node: Tensor, node_type: int) -> Grouping:
        return group_by_range(node, self.nodes.bounds[node_type])

    def degrees(self, node_type: int) -> Tensor:
        """Returns [n_t] int64, the in-edges of this rank's nodes of a type, in all relations."""
        found = torch.zeros(len(self.nodes_of(node_type)), dtype=torch.int64)
        for number in self.schema.relations_into[node_type]:
            found += self.relations[number].degrees
        return found

    def by_list(self, values: Tensor) -> Tensor:
        """Returns the target's value for each list of this rank. ``values``: [n], by node."""
        if self.schema.num_relations == 1 and self.schema.num_types == 1:
            return values
        targets = [values[self.rows_of(target)] for target in self.schema.target_types]
        return torch.cat([values[:0], *targets])

    def remote(self, values: Tensor) -> Remote:
        """Makes values [n] of this rank's nodes available to `pull`, by joint id."""
        first = self.book.nodes_of(self.rank).start
        return Remote(
            lambda node: group_by_range(node, self.nodes.rank_bounds),
            lambda node: values.index_select(0, node.sub_(first)),
            (),
            values.dtype,
        )


def along_edges(in_edges: InEdges, values: Tensor, edges: range) -> Tensor:
    """Returns [len(edges)], for each of these edges the value of its row. ``values``: by row."""
    if not len(edges):
        return values[:0]
    first = int(torch.searchsorted(in_edges.indptr, edges.start, right=True)) - 1
    last = int(torch.searchsorted(in_edges.indptr, edges.stop))
    ends = in_edges.indptr[first : last + 1].clamp(edges.start, edges.stop)
    return values[first:last].repeat_interleave(ends[1:] - ends[:-1])


#: Ranges begin at multiples of a power of two, so that a histogram of at most this length can
#: balance them.
BUCKETS = 1 << 16
_EDGE_BYTES = 12  # bytes of an edge in an exchange, by which rounds are sized


def read_slice(dataset: Dataset, comm: Communicator) -> ReadingSlice:
    """Reads all edges, each rank a share, and gives each rank those into its nodes. Collective.
    Raises `DatasetError` on every rank if an edge has a node id outside [0, N)."""
    bounds, schema = _balanced_bounds(dataset, comm), dataset.schema
    nodes = JointIds(bounds)
    # A graph without relations has one empty group of lists.
    lists = JointIds([bounds[target] for target in schema.target_types] or [torch.zeros_like(bounds[0])])
    in_edges = _Reader(dataset, comm, nodes, lists).read()
    total = sum(edges.num_edges for edges in dataset.edge_sets)
    return ReadingSlice(schema, nodes, lists, comm.rank, in_edges, total)


class _Reader:
    def __init__(self, dataset: Dataset, comm: Communicator, nodes: JointIds, lists: JointIds) -> None:
        self._dataset, self._comm, self._nodes, self._lists = dataset, comm, nodes, lists
        self._sizes = [edges.num_edges for edges in dataset.edge_sets]
        self._ids = ops.id_dtype(dataset.num_nodes)
        self._edge_ids = ops.id_dtype(max(self._sizes, default=0))
        self._list_ids = ops.id_dtype(lists.book.num_nodes)

    def read(self) -> InEdges:
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
        target = torch.empty(len(rows), dtype=self._list_ids)
        for number, edges, at in pieces_of(self._sizes, rows):
            ids = self._dataset.edge_sets[number].some(edges).target
            target[at] = self._lists.of(ids, number, self._list_ids)
        return target

    def _columns(self, rows: range) -> Tensor:
        """Returns [len(rows), 3]: list, source and id of some edges, in a dtype that holds all."""
        wide = max(self._ids, self._edge_ids, self._list_ids, key=lambda dtype: dtype.itemsize)
        columns = torch.empty(len(rows), 3, dtype=wide)
        for number, edges, at in pieces_of(self._sizes, rows):
            found = self._dataset.edge_sets[number].some(edges)
            columns[at, 0] = self._lists.of(found.target, number, self._list_ids).to(wide)
            columns[at, 1] = self._nodes.of(found.source, self._dataset.schema.source_types[number], wide)
            columns[at, 2] = found.edge
        return columns


def pieces_of(sizes: list[int], rows: range) -> Iterator[tuple[int, range, slice]]:
    """Cuts a range of all relations' edges, numbered through, at the ends of relations. Yields the
    relation's index, a range of its edges, and their positions in ``rows``."""
    begin = 0
    for number, size in enumerate(sizes):
        first, last = max(rows.start, begin), min(rows.stop, begin + size)
        if first < last:
            yield number, range(first - begin, last - begin), slice(first - rows.start, last - rows.start)
        begin += size


def _balanced_bounds(dataset: Dataset, comm: Communicator) -> list[Tensor]:
    """Returns by node type [ranks + 1] ids: ranges with about as many in-edges and nodes each.
    Checks the ids of all edges. Collective."""
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
    """Adds the in-edges of each bucket of targets to ``weight``. Returns a text of `outside`."""
    edges, schema = dataset.edge_sets[relation], dataset.schema
    ends = [schema.source_types[relation], schema.target_types[relation]]
    nodes = [dataset.node_sets[number].num_nodes for number in ends]
    for rows in shared_rounds(comm, edges.num_edges, _EDGE_BYTES):
        source, destination = (ids.contiguous() for ids in edges.some(rows)[:2])
        problem = outside(source, nodes[0]) or outside(destination, nodes[1])
        if problem:
            return problem
        ops.count_values(destination >> shift, 0, weight)
    return ""


def _even_bounds(edges: Tensor, shift: int, nodes: int, ranks: int) -> Tensor:
    """Returns [ranks + 1], ranges of a type's ids with about equal work. ``edges``: [buckets + 1],
    the in-edges of each bucket of ``1 << shift`` ids."""
    weight = edges[:-1] + (1 << shift)
    before = torch.cat([torch.zeros(1, dtype=torch.int64), weight.cumsum(0)])
    target = int(before[-1]) * torch.arange(ranks + 1) // ranks
    bounds = torch.searchsorted(before, target) * (1 << shift)
    bounds[0], bounds[-1] = 0, nodes
    return bounds.clamp_(max=nodes)


@dataclass(frozen=True, eq=False)
class JointIds:
    """Numbers the members of several groups together: by rank, then group, then id. A group is a
    node type, with its nodes, or a relation, with one adjacency list per target. Each rank has a
    range of each group, and so of the joint ids. With a single group, joint ids are its ids."""

    bounds: list[Tensor]  # by group: [ranks + 1] int64, each rank's range of ids

    @cached_property
    def book(self) -> PartitionBook:
        """The ranges of joint ids as a book: ranks in place of parts, groups in place of types."""
        sizes = torch.stack([bounds.diff() for bounds in self.bounds], dim=1)
        return PartitionBook([0, *sizes.flatten().cumsum(0).tolist()], len(self.bounds))

    @cached_property
    def rank_bounds(self) -> Tensor:
        """[ranks + 1] int64, where each rank's joint ids begin."""
        return self.book.part_offsets

    def of(self, ids: Tensor, group: int, dtype: torch.dtype) -> Tensor:
        """Returns the joint ids of members of a group, in a dtype that holds them."""
        if len(self.bounds) == 1:
            return ids.to(dtype)
        bounds = self.bounds[group]
        rank = torch.searchsorted(bounds, ids.to(torch.int64), right=True) - 1
        return ids.to(dtype) + self._shifts[rank, group].to(dtype)

    def apart(self, joint: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the members' ids in their groups, and the indices of the groups, [n] each."""
        if len(self.bounds) == 1:
            return joint, torch.zeros(joint.numel(), dtype=torch.int64)
        group, rank = self.book.type_of(joint), self.book.owner(joint)
        return joint - self._shifts[rank, group], group

    @cached_property
    def _shifts(self) -> Tensor:
        begins = torch.stack([bounds[:-1] for bounds in self.bounds], dim=1)
        return self.book.offsets[:-1].view(-1, len(self.bounds)) - begins
