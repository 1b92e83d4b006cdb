"""The edges of a layer of several relations, from PyG's form or from a minibatch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.nn.graph import LayerGraph, LayerRows
from pyg_batchgnn.nn.inputs import Rows, check_matrix
from pyg_batchgnn.nn.sampled import Relation, TypedBatch, is_typed, layer_graph, layer_rows
from pyg_batchgnn.nn.whole_graph import whole_graph


class TypedEdges(Protocol):
    """The edges of a layer by relation, and its rows by node type."""

    def graph(self, relation: Relation) -> LayerGraph | None:
        """Returns the edges of a relation, or None if there is no such relation."""
        ...

    def rows(self, name: str) -> LayerRows:
        """Returns the rows of a node type."""
        ...


@dataclass(frozen=True)
class OfMinibatch:
    """A layer of a minibatch."""

    minibatch: TypedBatch
    layer: int

    def graph(self, relation: Relation) -> LayerGraph | None:
        if relation not in self.minibatch.schema.relations:
            return None
        return layer_graph(self.minibatch, self.layer, relation)

    def rows(self, name: str) -> LayerRows:
        return layer_rows(self.minibatch, self.layer, name)


@dataclass(frozen=True)
class OfWholeGraph:
    """PyG's edges of a graph held whole.

    Attributes:
        edge_index: [2, E], sources above targets, by relation.
        sizes: the number of nodes of each type whose rows are known.
    """

    edge_index: Mapping[Relation, Tensor]
    sizes: Mapping[str, int]

    def graph(self, relation: Relation) -> LayerGraph | None:
        edges, (source, _, target) = self.edge_index.get(relation), relation
        if edges is None:
            return None
        sources = self.sizes.get(source, 0)
        return whole_graph(edges, sources, self.sizes.get(target, sources))

    def rows(self, name: str) -> LayerRows:
        return LayerRows(self.sizes[name], self.sizes[name])


@dataclass(frozen=True)
class OfPiece:
    """A layer of some nodes of a graph with all their in-edges, for inference.

    Attributes:
        targets: the nodes that are computed, by type.
        sources: the number of nodes that are read, by type. The targets are the first ones.
        edges: the in-edges of the targets, by relation.
        degrees: see `LayerGraph.degree`, by relation.
    """

    targets: Mapping[str, range]
    sources: Mapping[str, int]
    edges: Mapping[Relation, ops.InEdges]
    degrees: Mapping[Relation, Tensor]

    def graph(self, relation: Relation) -> LayerGraph | None:
        if relation not in self.edges:
            return None
        sources = self.sources.get(relation[0], 0)
        return LayerGraph(self.edges[relation], sources, degree=self.degrees.get(relation))

    def rows(self, name: str) -> LayerRows:
        targets = self.targets.get(name, range(0))
        return LayerRows(len(targets), self.sources.get(name, len(targets)))


def typed_edges(edges: Any, layer: int | None, x: Mapping[str, Rows]) -> TypedEdges:
    """Returns the edges of a layer in one form.

    Args:
        edges: a minibatch with ``layer``, [2, E] by relation, or a piece of a whole graph.
        layer: the number of the layer in the minibatch, from 1; None without a minibatch.
        x: the rows of each type.

    Raises:
        TypeError: ``edges`` are neither.
        ValueError: the layer is missing or not allowed, or a type has more rows than the minibatch
            has nodes of it.
    """
    for name, rows in x.items():
        check_matrix(f"x_dict[{name!r}]", rows)
    if is_typed(edges):
        if layer is None:
            raise ValueError("give the number of the layer with a minibatch: conv(x_dict, minibatch, layer)")
        for name, rows in x.items():
            nodes = edges.nodes[edges.schema.type_number(name)].node.numel()
            if rows.size(0) > nodes:
                raise ValueError(
                    f"x_dict[{name!r}] has {rows.size(0)} rows, but the minibatch has {nodes} nodes of the "
                    f"type; give the rows of its nodes: pyg_batchgnn.nn.features_by_type(minibatch)"
                )
        return OfMinibatch(edges, layer)
    if layer is not None:
        raise ValueError(f"layer={layer} belongs to a minibatch, got edges of {type(edges).__name__}")
    if isinstance(edges, OfPiece):
        return edges
    if not isinstance(edges, Mapping):
        raise TypeError(
            f"expected a minibatch or a dict of edges by relation, got {type(edges).__name__}; a loader with "
            f"export='native' yields minibatches"
        )
    return OfWholeGraph(edges, {name: rows.size(0) for name, rows in x.items()})
