"""A layer of several relations: the terms that they give each node type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.nn.graph import LayerGraph, LayerRows
from pyg_batchgnn.nn.inputs import ConvInput, NodeRows, Rows, head
from pyg_batchgnn.nn.linear import is_watched
from pyg_batchgnn.nn.native_conv import check_called
from pyg_batchgnn.nn.refusals import layer_name
from pyg_batchgnn.nn.sampled import Relation
from pyg_batchgnn.nn.terms import Terms, total
from pyg_batchgnn.nn.typed_edges import OfMinibatch, OfPiece, TypedEdges
from pyg_batchgnn.nn.update import Update, update_arguments

#: Values of edges by the name of the argument of a layer, and by relation.
EdgeValues = Mapping[str, Mapping[Relation, Tensor]]


@dataclass
class TypeTerms:
    """The terms that the relations of a layer give one node type.

    Attributes:
        rows: the rows that the layer computes.
        source: the rows that the layer reads of this type; None if there are none.
        parts: the terms of each relation.
    """

    rows: LayerRows
    source: NodeRows | None
    parts: list[Terms] = field(default_factory=list)

    def _own(self) -> Rows | None:
        return None if self.source is None else self.source.own()

    def added(self, update: Update | None, training: bool) -> Tensor:
        """Returns the sum of the relations, with ReLU and dropout in the same pass."""
        return total(self.parts, self._own(), self.rows, update, training)

    def mean(self, update: Update | None, training: bool) -> Tensor:
        """Returns the mean of the relations, with ReLU and dropout in the same pass."""
        parts = [part.divided(len(self.parts)) for part in self.parts]
        return total(parts, self._own(), self.rows, update, training)

    def joined(self, join: Callable[[list[Tensor]], Tensor], update: Update | None, training: bool) -> Tensor:
        """Returns another function of the results of the relations."""
        own = self._own()
        out = join([total([part], own, self.rows) for part in self.parts])
        return out if update is None else ops.activate(out, **update_arguments(update, self.rows, training))


def terms_by_type(
    convs: Mapping[Relation, Any], x: Mapping[str, Rows], edges: TypedEdges, values: EdgeValues
) -> dict[str, TypeTerms]:
    """Computes a layer of several relations up to the sum over them.

    Args:
        convs: the native convolution of each relation. Relations without edges are left out.
        x: the rows of the sources of each type; the first are those of the targets.
        edges: the edges of the layer.
        values: values of edges.

    Returns:
        The terms of each type that a relation leads to, in the order of the relations.

    Raises:
        KeyError: a relation leads from a type that has no rows.
    """
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
            targets = layer[target] if target in layer else _rows_of(one.graph, edges, target)
            results[target] = TypeTerms(targets, rows.get(target))
        own_values = {name: of[relation] for name, of in values.items() if relation in of}
        results[target].parts.append(_terms(convs[relation], one, own_values, relation))
        rows[source].readers -= 1
    return results


def _rows_of(graph: LayerGraph, edges: TypedEdges, name: str) -> LayerRows:
    """Returns the rows of a type whose own rows are not known."""
    return edges.rows(name) if isinstance(edges, (OfMinibatch, OfPiece)) else LayerRows(graph.num_targets, 0)


def _input(
    relation: Relation, graph: LayerGraph, rows: Mapping[str, NodeRows], x: Mapping[str, Rows]
) -> ConvInput:
    """Returns the rows and edges of a relation.

    Raises:
        KeyError: there are no rows of its sources.
        ValueError: there are fewer rows than the layer reads.
    """
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
    """Returns the terms of a relation."""
    for name in values:
        if name != conv.edge_values:
            raise TypeError(f"the {layer_name(conv)} of {relation} takes no {name}_dict; leave it out")
    check_called(conv)
    if is_watched(conv):
        own = given.own_rows()
        x = given.x if given.targets_in_sources else (given.x, own)
        return Terms(values=conv(x, given.graph, **values))
    result: Terms = conv.terms(given, **values)
    return result
