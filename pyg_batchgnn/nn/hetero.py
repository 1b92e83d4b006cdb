"""A layer of several relations: a convolution for each (Schlichtkrull et al. 2018), summed by node
type in as few passes as possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, cast

import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.conv.hetero_conv import group

from pyg_batchgnn import ops
from pyg_batchgnn.nn.inputs import (
    ConvInput,
    LayerGraph,
    LayerRows,
    NodeRows,
    Rows,
    check_matrix,
    head,
    is_typed,
    layer_graph,
    layer_rows,
    whole_graph,
)
from pyg_batchgnn.nn.layer_steps import Terms, Update, total, update_arguments
from pyg_batchgnn.nn.modules import is_watched
from pyg_batchgnn.nn.native_conv import NativeConv, check_called, layer_name
from pyg_batchgnn.types import NodePiece, Relation, SampledMinibatch


@dataclass(frozen=True)
class MinibatchEdges:
    """The edges of one layer of a minibatch; layer 1 is nearest the input."""

    minibatch: SampledMinibatch
    layer: int

    def graph(self, relation: Relation) -> LayerGraph | None:
        """Returns the edges of a relation, or None if there is no such relation."""
        if relation not in self.minibatch.schema.relations:
            return None
        return layer_graph(self.minibatch, self.layer, relation)

    def rows(self, name: str) -> LayerRows:
        """Returns the nodes of a type."""
        return layer_rows(self.minibatch, self.layer, name)


@dataclass(frozen=True)
class WholeGraphEdges:
    """The edges of a whole graph, as PyG's ``edge_index_dict`` gives them."""

    edge_index: Mapping[Relation, Tensor]  # [2, E], sources above targets, by relation
    sizes: Mapping[str, int]  # the number of nodes of each type whose rows are known

    def graph(self, relation: Relation) -> LayerGraph | None:
        edges, (source, _, target) = self.edge_index.get(relation), relation
        if edges is None:
            return None
        sources = self.sizes.get(source, 0)
        return whole_graph(edges, sources, self.sizes.get(target, sources))

    def rows(self, name: str) -> LayerRows:
        return LayerRows(self.sizes[name], self.sizes[name])


@dataclass(frozen=True)
class PieceEdges:
    """The edges of some nodes of a graph, for the inference of all nodes."""

    piece: NodePiece  # some nodes with all their in-edges. The targets are the first sources.
    # By relation, the degrees of the sources in the whole graph (`LayerGraph.degree`).
    degrees: Mapping[Relation, Tensor]

    def graph(self, relation: Relation) -> LayerGraph | None:
        edges = self.piece.edges.get(relation)
        if edges is None:
            return None
        return LayerGraph(edges, self._sources(relation[0], 0), degree=self.degrees.get(relation))

    def rows(self, name: str) -> LayerRows:
        targets = len(self.piece.targets.get(name, range(0)))
        return LayerRows(targets, self._sources(name, targets))

    def _sources(self, name: str, otherwise: int) -> int:
        return self.piece.nodes[name].num_nodes if name in self.piece.nodes else otherwise


#: The edges of a layer by relation, and the nodes that it reads and computes by type.
TypedEdges: TypeAlias = MinibatchEdges | WholeGraphEdges | PieceEdges


def typed_edges(edges: Any, layer: int | None, x: Mapping[str, Rows]) -> TypedEdges:
    """Returns the edges of a layer in one form, from any that `HeteroConv.forward` takes."""
    for name, rows in x.items():
        check_matrix(f"x_dict[{name!r}]", rows)
    if is_typed(edges):
        if layer is None:
            raise ValueError("give the number of the layer with a minibatch: conv(x_dict, minibatch, layer)")
        for name, rows in x.items():
            if rows.size(0) > (nodes := edges.nodes_of(name).node.numel()):
                raise ValueError(
                    f"x_dict[{name!r}] has {rows.size(0)} rows, but the minibatch has {nodes} nodes of the "
                    f"type; give the rows of its nodes: pyg_batchgnn.nn.features_by_type(minibatch)"
                )
        return MinibatchEdges(edges, layer)
    if layer is not None:
        raise ValueError(f"layer={layer} belongs to a minibatch, got edges of {type(edges).__name__}")
    if isinstance(edges, TypedEdges):
        return edges
    if not isinstance(edges, Mapping):
        raise TypeError(
            f"expected a minibatch or a dict of edges by relation, got {type(edges).__name__}; a loader with "
            f"export='native' yields minibatches"
        )
    return WholeGraphEdges(edges, {name: rows.size(0) for name, rows in x.items()})


# Terms by node type ###############################################################################

#: Values of edges by the name of the argument of a layer, and by relation.
EdgeValues = Mapping[str, Mapping[Relation, Tensor]]
#: Joins the results of several relations into one.
Join: TypeAlias = Callable[[list[Tensor]], Tensor]


@dataclass
class TypeTerms:
    """The terms that add up to the rows of one node type after a layer of several relations."""

    rows: LayerRows
    source: NodeRows | None  # the rows that the layer reads of this type; None if there are none
    parts: list[Terms] = field(default_factory=list)

    def result(self, join: Join | str, update: Update | None = None, training: bool = False) -> Tensor:
        """Returns [D, O], the rows of the type after the layer, with ReLU and dropout."""
        own = None if self.source is None else self.source.own()
        if isinstance(join, str):
            by = len(self.parts) if join == "mean" else 1
            return total([part.divided(by) for part in self.parts], own, self.rows, update, training)
        out = join([total([part], own, self.rows) for part in self.parts])
        return out if update is None else ops.activate(out, **update_arguments(update, self.rows, training))


def terms_by_type(
    convs: Mapping[Relation, Any], x: Mapping[str, Rows], edges: TypedEdges, values: EdgeValues
) -> dict[str, TypeTerms]:
    """Computes the terms of a layer of several relations, not yet added up, by node type."""
    graphs = {relation: edges.graph(relation) for relation in convs}
    found = {relation: graph for relation, graph in graphs.items() if graph is not None}
    readers = Counter(source for source, _, _ in found)
    ends = dict.fromkeys(name for source, _, target in found for name in (source, target))
    layer = {name: edges.rows(name) for name in ends if name in x}
    rows = {
        name: NodeRows(head(x[name], min(one.num_sources, x[name].size(0))), one.num_targets, readers[name])
        for name, one in layer.items()
    }
    given = {relation: _input(relation, graph, rows, x) for relation, graph in found.items()}
    results: dict[str, TypeTerms] = {}
    for relation, one in given.items():
        source, _, target = relation
        if target not in results:
            targets = layer.get(target)
            if targets is None:  # rows of the type are not known
                is_whole = isinstance(edges, WholeGraphEdges)
                targets = LayerRows(one.graph.num_targets, 0) if is_whole else edges.rows(target)
            results[target] = TypeTerms(targets, rows.get(target))
        own_values = {name: of[relation] for name, of in values.items() if relation in of}
        results[target].parts.append(_terms(convs[relation], one, own_values, relation))
        rows[source].readers -= 1
    return results


def _input(
    relation: Relation, graph: LayerGraph, rows: Mapping[str, NodeRows], x: Mapping[str, Rows]
) -> ConvInput:
    source, _, target = relation
    if source not in rows:
        raise KeyError(f"relation {relation} reads rows of {source!r}, but x_dict has only {sorted(x)}")
    for name, count in ((source, graph.num_sources), (target, graph.num_targets)):
        if name in rows and rows[name].rows.size(0) < count:
            raise ValueError(
                f"x_dict[{name!r}] has {rows[name].rows.size(0)} rows, but {relation} has {count} of that "
                f"type in this layer"
            )
    return ConvInput(graph, rows[source], rows.get(target))


def _terms(conv: Any, given: ConvInput, values: Mapping[str, Tensor], relation: Relation) -> Terms:
    for name in values:
        if name != conv.edge_values:
            raise TypeError(f"the {layer_name(conv)} of {relation} takes no {name}_dict; leave it out")
    check_called(conv)
    if is_watched(conv):
        own = given.own_rows()
        x = given.x if given.targets_in_sources else (given.x, own)
        return Terms(values=conv(x, given.graph, **values))
    return cast(Terms, conv.terms(given, **values))


_AGGREGATIONS = ("sum", "mean", "min", "max", "cat", None)


class HeteroConv(torch_geometric.nn.HeteroConv):
    """PyG's `HeteroConv` over native convolutions, with the same arguments and ``state_dict``. With
    "sum" and "mean" all relations into a type are one pass of products. Native minibatches are read
    in place: ``conv(x_dict, minibatch, layer)``.

    >>> conv = HeteroConv({("author", "writes", "paper"): SAGEConv((4, 4), 16)})
    >>> conv(typed.x_dict, typed.edge_index_dict)["paper"].shape
    torch.Size([50, 16])

    Args:
        convs: the native convolution of each relation. One that adds self loops, as `GCNConv` does,
            needs a relation within one node type, as in PyG.
        aggr: how the results of relations into one type are joined: "sum", "mean", "min", "max",
            "cat", or None to stack them.

    Raises:
        TypeError, ValueError: a convolution is not native, or would add self loops between two
            types, or the aggregation is unknown.
    """

    def __init__(self, convs: Mapping[Relation, MessagePassing], aggr: str | None = "sum") -> None:
        super().__init__(dict(convs), aggr)
        if aggr not in _AGGREGATIONS:
            raise ValueError(f"aggr must be one of {', '.join(map(str, _AGGREGATIONS))}, got {aggr!r}")
        for relation, conv in self.convs.items():
            if not isinstance(conv, NativeConv):
                kind = f"{type(conv).__module__}.{type(conv).__name__}"
                raise TypeError(
                    f"the layer of {relation} is a {kind}; give one of pyg_batchgnn.nn, or use "
                    f"torch_geometric.nn.HeteroConv"
                )

    def forward(
        self,
        x_dict: Mapping[str, Rows],
        edge_index_dict: SampledMinibatch | Mapping[Relation, Tensor],
        layer: int | Mapping[Relation, Tensor] | None = None,
        *,
        update: Update | None = None,
        **kwargs_dict: Mapping[Relation, Tensor],
    ) -> dict[str, Tensor]:
        """Returns the rows of the targets by node type, for the types that a relation leads to.

        Args:
            x_dict: [>= N, F] by node type, the rows of the sources, tensors or `RowView`; the first
                D are the rows of the targets. `features_by_type` reads them from a minibatch.
            edge_index_dict: a minibatch with ``layer``, or [2, E] by relation, where some may be
                missing.
            layer: the number of the layer in the minibatch; 1 is nearest the input. PyG's edge
                values by relation are accepted in this place.
            update: ReLU and dropout of the results, in the same pass where possible.
            **kwargs_dict: edge values by relation, of all edges of the minibatch:
                ``edge_attr_dict`` for attention, ``edge_weight_dict`` for GCN.

        Returns:
            [D, out_channels] by node type; [D, relations, out_channels] if ``aggr`` is None.
        """
        for name in kwargs_dict:
            if not name.endswith("_dict"):
                raise ValueError(f"keyword arguments end with '_dict', got {name!r}; give {name}_dict")
        values = {name.removesuffix("_dict"): one for name, one in kwargs_dict.items()}
        if isinstance(layer, Mapping):
            values, layer = values | self._positional(layer), None
        edges = typed_edges(edge_index_dict, layer, x_dict)
        found = terms_by_type(dict(self.convs.items()), x_dict, edges, values)
        join = self.aggr if self.aggr in ("sum", "mean") else partial(group, aggr=self.aggr)
        return {name: terms.result(join, update, self.training) for name, terms in found.items()}

    def _positional(self, given: Mapping[Relation, Tensor]) -> dict[str, Mapping[Relation, Tensor]]:
        values: dict[str, Any] = {}
        for relation, one in given.items():
            if relation not in self.convs:
                continue
            name = self.convs[relation].edge_values
            if name is None:
                raise TypeError(f"the layer of {relation} takes no values of edges, leave them out")
            values.setdefault(name, {})[relation] = one
        return values
