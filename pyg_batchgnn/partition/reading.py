"""The topology while it is read: each rank has the in-edges of a range of original ids of each node
type."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pyg_batchgnn.data import Schema
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition.book import PartitionBook
from pyg_batchgnn.partition.joint_ids import JointIds
from pyg_batchgnn.partition.move import Grouping, Remote, group_by_range


@dataclass
class ReadingSlice:
    """The nodes that this rank has read, and their in-edges.

    Attributes:
        schema: the node types and the relations.
        nodes: the joint ids of the nodes of all types.
        lists: the joint ids of the adjacency lists of all relations. A relation has a list for each
            node of its target type.
        rank: the rank of this process.
        in_edges: one row per list of this rank, with explicit edge ids, ascending in each list. The
            sources are joint ids of nodes at first.
        total_edges: the number of edges of all ranks and relations.
    """

    schema: Schema
    nodes: JointIds
    lists: JointIds
    rank: int
    in_edges: InEdges
    total_edges: int

    @property
    def book(self) -> PartitionBook:
        """The ranges of all ranks as a book: its ids are the joint ids of the nodes."""
        return self.nodes.book

    @property
    def num_nodes(self) -> int:
        """The number of nodes of all types."""
        return len(self.book.nodes_of(self.rank))

    @cached_property
    def relations(self) -> list[InEdges]:
        """The in-edges of each relation, one row per node of the target type's range; views."""
        return [self._relation(number) for number in range(self.schema.num_relations)]

    def nodes_of(self, node_type: int) -> range:
        """Returns the original ids of this rank's nodes of a type, given by number."""
        bounds = self.nodes.bounds[node_type]
        return range(int(bounds[self.rank]), int(bounds[self.rank + 1]))

    def rows_of(self, node_type: int) -> slice:
        """Returns where the nodes of a type are among this rank's nodes of all types."""
        own, first = self.book.nodes_of(self.rank, node_type), self.book.nodes_of(self.rank).start
        return slice(own.start - first, own.stop - first)

    def group(self, node: Tensor, node_type: int) -> Grouping:
        """Groups original ids [n] of a type by the rank that has read them."""
        return group_by_range(node, self.nodes.bounds[node_type])

    def degrees(self, node_type: int) -> Tensor:
        """Returns the number of in-edges of this rank's nodes of a type, in all relations."""
        found = torch.zeros(len(self.nodes_of(node_type)), dtype=torch.int64)
        for number in self.schema.relations_into[node_type]:
            found += self.relations[number].degrees
        return found

    def by_list(self, values: Tensor) -> Tensor:
        """Returns the value of the target of each list of this rank; values [n] are by node."""
        if self.schema.num_relations == 1 and self.schema.num_types == 1:
            return values
        targets = [values[self.rows_of(target)] for target in self.schema.target_types]
        return torch.cat([values[:0], *targets])

    def remote(self, values: Tensor) -> Remote:
        """Returns values [n] of which each rank has those of its nodes, to be pulled by joint
        id."""
        first = self.book.nodes_of(self.rank).start
        return Remote(
            lambda node: group_by_range(node, self.nodes.rank_bounds),
            lambda node: values.index_select(0, node.sub_(first)),
            (),
            values.dtype,
        )

    def _relation(self, number: int) -> InEdges:
        lists, first = self.lists.book.nodes_of(self.rank, number), self.lists.book.nodes_of(self.rank).start
        rows = range(lists.start - first, lists.stop - first)
        edges = self.in_edges.edges(rows)
        at = slice(edges.start, edges.stop)
        indptr = self.in_edges.indptr[rows.start : rows.stop + 1]
        if edges.start:
            indptr = indptr - edges.start
        return InEdges(indptr, self.in_edges.indices[at], self.in_edges.explicit_edge_ids()[at])


def along_edges(in_edges: InEdges, values: Tensor, edges: range) -> Tensor:
    """Returns, for each of some edges, the value of its row, [len(edges)]; values [n] are by
    row."""
    if not len(edges):
        return values[:0]
    first = int(torch.searchsorted(in_edges.indptr, edges.start, right=True)) - 1
    last = int(torch.searchsorted(in_edges.indptr, edges.stop))
    ends = in_edges.indptr[first : last + 1].clamp(edges.start, edges.stop)
    return values[first:last].repeat_interleave(ends[1:] - ends[:-1])
