"""A graph in memory, by destination."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops import InEdges, OwnedEdges
from pyg_batchgnn.types import HOMOGENEOUS, Group, Relation, Schema

if TYPE_CHECKING:
    from pyg_batchgnn.data import Dataset


@dataclass(frozen=True, eq=False, repr=False)
class TypedGraph:
    """A graph of any number of node types and relations, by destination. All relations have one
    dtype of source ids. Raises TypeError, ValueError or IndexError if the arrays do not fit."""

    schema: Schema  # the node types and the relations
    num_nodes: tuple[int, ...]  # the number of nodes of each type
    # The in-edges of each relation, a row per target node; ``indices`` are ids in the source type.
    relations: tuple[InEdges, ...]

    def __post_init__(self) -> None:
        schema = self.schema
        ops.check_type("schema", schema, Schema, "typed_graph_from_pyg makes a graph of a Data")
        if len(self.num_nodes) != schema.num_types or len(self.relations) != schema.num_relations:
            raise ValueError(
                f"a schema of {schema.num_types} node types and {schema.num_relations} relations came with "
                f"{len(self.num_nodes)} numbers of nodes and {len(self.relations)} lists of in-edges"
            )
        for at, (name, count) in enumerate(zip(schema.node_types, self.num_nodes, strict=True)):
            if at not in schema.target_types:  # else there is an array of that size, maybe a mapped file
                ops.check_node_count(f"the number of nodes of type {name!r}", count)
        for edges in self.relations:
            ops.check_type("a relation", edges, InEdges, "make it with InEdges.checked")
        for source, edges in zip(schema.source_types, self.relations, strict=True):
            edges.check(num_sources=self.num_nodes[source])
        for names, target, edges in zip(schema.relations, schema.target_types, self.relations, strict=True):
            if edges.num_targets != self.num_nodes[target]:
                raise ValueError(
                    f"relation {names} has rows for {edges.num_targets} nodes of type {names[2]!r}, but "
                    f"there are {self.num_nodes[target]}"
                )
        if len({edges.indices.dtype for edges in self.relations}) > 1:
            dtype = ops.id_dtype(max(self.num_nodes))
            same = [InEdges(one.indptr, one.indices.to(dtype), one.edge_ids) for one in self.relations]
            object.__setattr__(self, "relations", tuple(same))

    def __repr__(self) -> str:
        nodes = ", ".join(f"{n}={k}" for n, k in zip(self.schema.node_types, self.num_nodes, strict=True))
        edges = ", ".join(
            f"{'-'.join(names)}={one.num_edges}"
            for names, one in zip(self.schema.relations, self.relations, strict=True)
        )
        return f"TypedGraph(nodes: {nodes}; edges: {edges})"

    @property
    def num_edges(self) -> int:
        """The number of edges of all relations."""
        return sum(edges.num_edges for edges in self.relations)

    @property
    def rows_by_group(self) -> dict[Group, int]:
        """The number of nodes of each type and of edges of each relation."""
        nodes = dict(zip(self.schema.node_groups, self.num_nodes, strict=True))
        edges = zip(self.schema.edge_groups, self.relations, strict=True)
        return {**nodes, **{group: one.num_edges for group, one in edges}}

    def in_edges(self, relation: Relation) -> InEdges:
        """Returns the in-edges of one relation."""
        return self.relations[self.schema.relation_number(relation)]

    @classmethod
    def from_edge_indices(
        cls, schema: Schema, num_nodes: Mapping[str, int], edge_indices: Mapping[Relation, Tensor]
    ) -> TypedGraph:
        """Sorts edge lists by destination: by relation [2, E_r] int32 or int64, sources above
        targets, in any order. A missing relation has no edges. Raises IndexError if an id is
        negative or not below the number of nodes of its type."""
        for relation in edge_indices:
            schema.relation_number(relation)
        none = torch.empty(2, 0, dtype=torch.int64)
        relations = [
            ops.build_csc(edge_indices.get(names, none), num_nodes[names[2]], num_nodes[names[0]])
            for names in schema.relations
        ]
        return cls(schema, tuple(num_nodes[name] for name in schema.node_types), tuple(relations))

    @classmethod
    def of_dataset(cls, dataset: Dataset) -> TypedGraph:
        """Returns a data set's graph. Edges by destination are used in place, edge lists sorted."""
        counts = {nodes.name: nodes.num_nodes for nodes in dataset.node_sets}
        relations = [
            ops.build_csc(edges.edge_index, counts[edges.relation[2]], counts[edges.relation[0]])
            if edges.csc is None
            else edges.csc
            for edges in dataset.edge_sets
        ]
        return cls(dataset.schema, tuple(counts.values()), tuple(relations))

    def advise_huge_pages(self) -> TypedGraph:
        """Asks for huge pages for the arrays, which sampling reads at random. Returns the graph."""
        arrays = ((one.indptr, one.indices, one.edge_ids) for one in self.relations)
        for array in itertools.chain.from_iterable(arrays):
            if array is not None:
                ops.advise_huge_pages(array)
        return self


@dataclass(frozen=True, eq=False, repr=False)
class CscGraph:
    """A homogeneous graph by destination: the in-edges of every node.

    The in-edges of a node are in ascending input edge id, on which samples depend. The arrays are
    checked when the graph is made, and again by samplers if torch has written to them since.

    >>> graph = CscGraph.from_edge_index(data.edge_index, data.num_nodes)
    >>> graph.num_nodes, graph.num_edges
    (100, 600)
    """

    in_edges: InEdges  # the in-edges of all nodes; row i is node i

    def __post_init__(self) -> None:
        remedy = "use graph_from_pyg(data) for a Data, CscGraph.from_edge_index for an edge list"
        ops.check_type("in_edges", self.in_edges, InEdges, remedy)
        self.in_edges.check()

    def __repr__(self) -> str:
        return f"CscGraph(nodes={self.num_nodes}, edges={self.num_edges})"

    @property
    def indptr(self) -> Tensor:
        """[num_nodes + 1] int64, where the in-edges of each node begin."""
        return self.in_edges.indptr

    @property
    def indices(self) -> Tensor:
        """[num_edges] int32 or int64, the source of each edge."""
        return self.in_edges.indices

    @property
    def edge_ids(self) -> Tensor | None:
        """[num_edges] int32 or int64, the input id of each edge; None if it is the position."""
        return self.in_edges.edge_ids

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return self.in_edges.num_targets

    @property
    def num_edges(self) -> int:
        """The number of edges."""
        return self.in_edges.num_edges

    @cached_property
    def typed(self) -> TypedGraph:
        """The same graph as a `TypedGraph` of one node type and one relation."""
        return TypedGraph(HOMOGENEOUS, (self.num_nodes,), (self.in_edges,))

    @property
    def owned_edges(self) -> OwnedEdges:
        """The same edges for passes over all nodes, which this process owns."""
        nodes = self.num_nodes
        return OwnedEdges(self.in_edges, torch.arange(nodes), 0, nodes, self.num_edges)

    @classmethod
    def from_edge_index(cls, edge_index: Tensor, num_nodes: int) -> CscGraph:
        """Sorts an edge list by destination. Ids take 4 bytes if they fit, else 8. ``edge_index``:
        [2, E] int32 or int64, sources above destinations, in any order. Raises IndexError if an id
        is negative or not below ``num_nodes``."""
        return cls(ops.build_csc(edge_index, num_nodes))

    @classmethod
    def from_csc(cls, indptr: Tensor, indices: Tensor, edge_ids: Tensor | None = None) -> CscGraph:
        """Wraps arrays by destination, without a copy. ``indptr``: [N + 1] int64, from 0 to E,
        ascending. ``indices``: [E] int32 or int64, in [0, N). ``edge_ids``: [E] int32 or int64, in
        [0, E); None: the positions. If the edge ids of a node do not ascend, samples are as random,
        but others than from the edge list. Raises TypeError, ValueError or IndexError, with the
        entry, if the arrays do not fit together."""
        return cls(InEdges.checked(indptr, indices, edge_ids))

    def advise_huge_pages(self) -> CscGraph:
        """Asks for huge pages for the arrays, which sampling reads at random. Returns the graph."""
        self.typed.advise_huge_pages()
        return self


def reversed_relation(relation: Relation) -> Relation:
    """Returns (target type, name, source type) of a relation."""
    source, name, target = relation
    return target, name, source


def reversed_group(group: Group) -> Group:
    """Returns the group of the reversed relation; nodes' groups are unchanged."""
    return group if isinstance(group.name, str) else Group(group.kind, reversed_relation(group.name))


def reversed_graph(graph: TypedGraph) -> TypedGraph:
    """Returns the graph with every edge reversed; edges keep their input edge ids."""
    schema = replace(graph.schema, relations=tuple(map(reversed_relation, graph.schema.relations)))
    counts = graph.num_nodes
    ends = zip(graph.schema.source_types, graph.schema.target_types, strict=True)
    relations = [
        ops.build_csc(edges.edge_list().flip(0).contiguous(), counts[source], counts[target])
        for edges, (source, target) in zip(graph.relations, ends, strict=True)
    ]
    return TypedGraph(schema, counts, tuple(relations))
