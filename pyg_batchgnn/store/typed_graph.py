"""A graph with any number of node types and relations, by destination."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.data import Group, Relation, Schema
from pyg_batchgnn.ops import InEdges


@dataclass(frozen=True, eq=False, repr=False)
class TypedGraph:
    """The in-edges of every node, by relation.

    All relations get one dtype of source ids.

    Attributes:
        schema: the node types and the relations.
        num_nodes: the number of nodes of each type.
        relations: the in-edges of each relation. Row i belongs to node i of the target type;
            ``indices`` are ids within the source type.

    Raises:
        ValueError: the numbers of types, relations or rows are not those of the schema.
        TypeError, ValueError, IndexError: the arrays of a relation do not fit together.
    """

    schema: Schema
    num_nodes: tuple[int, ...]
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
        """Sorts the edge list of each relation by destination.

        Args:
            schema: the node types and the relations.
            num_nodes: the number of nodes by type.
            edge_indices: by relation, [2, E_r] int32 or int64, sources above destinations, in any
                order. A relation that is missing has no edges.

        Raises:
            KeyError: a relation that is not in the schema.
            IndexError: an id is negative or not below the number of nodes of its type.
        """
        for relation in edge_indices:
            schema.relation_number(relation)
        none = torch.empty(2, 0, dtype=torch.int64)
        relations = [
            ops.build_csc(edge_indices.get(names, none), num_nodes[names[2]], num_nodes[names[0]])
            for names in schema.relations
        ]
        return cls(schema, tuple(num_nodes[name] for name in schema.node_types), tuple(relations))

    def advise_huge_pages(self) -> TypedGraph:
        """Asks for huge pages under the arrays, as sampling reads at random. Returns the graph."""
        arrays = ((one.indptr, one.indices, one.edge_ids) for one in self.relations)
        for array in itertools.chain.from_iterable(arrays):
            if array is not None:
                ops.advise_huge_pages(array)
        return self
