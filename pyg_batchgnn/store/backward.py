"""A graph whose edges lead the other way."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.data import Group, Relation
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.store.typed_graph import TypedGraph


def reversed_relation(relation: Relation) -> Relation:
    """Returns a relation from its target type to its source type, of the same name."""
    source, name, target = relation
    return target, name, source


def reversed_group(group: Group) -> Group:
    """Returns the group of edges of the reversed relation; groups of nodes stay."""
    return group if isinstance(group.name, str) else Group(group.kind, reversed_relation(group.name))


def reversed_graph(graph: TypedGraph) -> TypedGraph:
    """Returns the graph with every edge reversed; edges keep their input edge ids."""
    schema = replace(graph.schema, relations=tuple(map(reversed_relation, graph.schema.relations)))
    counts = graph.num_nodes
    ends = zip(graph.schema.source_types, graph.schema.target_types, strict=True)
    relations = [
        ops.build_csc(edge_list(edges).flip(0).contiguous(), counts[source], counts[target])
        for edges, (source, target) in zip(graph.relations, ends, strict=True)
    ]
    return TypedGraph(schema, counts, tuple(relations))


def edge_list(edges: InEdges) -> Tensor:
    """Returns the edges of a relation, [2, E] int64, sources above targets, by input edge id."""
    index = torch.stack([edges.indices.long(), edges.targets()])
    if edges.edge_ids is None:
        return index
    ordered = torch.empty_like(index)
    ordered[:, edges.edge_ids.long()] = index
    return ordered
