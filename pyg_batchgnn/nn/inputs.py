"""What a convolution is called with, in PyG's form or with a minibatch, brought to one form."""

from __future__ import annotations

from typing import NamedTuple, cast

from torch import Tensor

from pyg_batchgnn.nn.graph import LayerGraph, SampledBatch, is_sampled, layer_graph, whole_graph
from pyg_batchgnn.nn.rows import RowView

#: Rows that a layer reads.
Rows = Tensor | RowView
#: Where a layer's edges come from.
Edges = Tensor | SampledBatch | LayerGraph


class ConvInput(NamedTuple):
    """A layer's rows and edges.

    Attributes:
        graph: D targets, N sources.
        x: [>= N, F] rows of the sources.
        own: [D, F'] rows of the targets, where they are given apart; None where they are the first of ``x``,
            or where there are none.
        beside: whether the targets are the first sources, so that their rows are the first of ``x``.
    """

    graph: LayerGraph
    x: Rows
    own: Rows | None
    beside: bool

    def own_rows(self) -> Rows | None:
        """The targets' rows [D, F'], None where there are none."""
        if not self.beside:
            return self.own
        return head(self.x, self.graph.num_targets)


def sampled(edges: Edges) -> SampledBatch:
    """The minibatch that goes with `Aggregated`; raises TypeError where there is another thing."""
    if not is_sampled(edges):
        raise TypeError(f"aggregates belong to a minibatch's nodes, got edges of {type(edges).__name__}")
    return edges


def head(x: Rows, rows: int) -> Rows:
    """The first ``rows`` rows."""
    if x.size(0) == rows:
        return x
    return x.head(rows) if isinstance(x, RowView) else x[:rows]


def conv_input(
    x: Rows | tuple[Rows, Rows | None],
    edges: Edges,
    layer: int | None,
    size: tuple[int, int] | None = None,
) -> ConvInput:
    """Checks and unites the ways to call a convolution.

    Args:
        x: rows of the sources, of which the first are the targets'; or (sources, targets or None).
        edges: a minibatch (with ``layer``), a `LayerGraph`, or PyG's [2, E] edge_index.
        layer: of the minibatch, 1 nearest the input; None with the others.
        size: (sources, targets), for an edge_index whose targets are given by no rows.

    Raises:
        TypeError, ValueError: a layer is missing or superfluous, or there are fewer rows than nodes.
    """
    pair = isinstance(x, (tuple, list))
    sources, own = (x[0], x[1]) if isinstance(x, (tuple, list)) else (x, None)
    graph = _graph(edges, layer, sources, own, size)
    beside = not pair or own is sources
    if sources.size(0) < graph.num_sources:
        raise ValueError(f"x has {sources.size(0)} rows, but the layer has {graph.num_sources} sources")
    if beside and graph.num_targets > sources.size(0):
        raise ValueError(f"x has {sources.size(0)} rows, but the layer has {graph.num_targets} targets")
    if own is not None and own.size(0) < graph.num_targets:
        raise ValueError(f"x[1] has {own.size(0)} rows, but the layer has {graph.num_targets} targets")
    own = None if beside or own is None else head(own, graph.num_targets)
    return ConvInput(graph, head(sources, graph.num_sources), own, beside)


def _graph(
    edges: Edges,
    layer: int | None,
    sources: Rows,
    own: Rows | None,
    size: tuple[int, int] | None,
) -> LayerGraph:
    if is_sampled(edges):
        if layer is None:
            raise ValueError("give the layer's number beside a minibatch: conv(x, minibatch, layer)")
        return layer_graph(edges, layer)
    if layer is not None:
        raise ValueError(f"layer={layer} belongs to a minibatch, got edges of {type(edges).__name__}")
    if isinstance(edges, LayerGraph):
        return edges
    targets = sources.size(0) if own is None else own.size(0)
    if size is not None:
        if size[0] != sources.size(0) or (own is not None and size[1] != own.size(0)):
            raise ValueError(f"size {tuple(size)} does not fit the rows given")
        targets = size[1]
    return whole_graph(cast(Tensor, edges), sources.size(0), targets)
