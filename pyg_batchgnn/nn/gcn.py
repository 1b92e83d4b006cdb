"""GCN (Kipf and Welling 2017), normalised once for the whole minibatch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing

from pyg_batchgnn import ops
from pyg_batchgnn.nn.aggregated import Aggregated, refuse_aggregated
from pyg_batchgnn.nn.inputs import ConvInput, Edges, HaloGraph, LayerGraph, Rows, check_input, table_and_row
from pyg_batchgnn.nn.layer_steps import RowProduct, Terms, Update, convolve
from pyg_batchgnn.nn.modules import set_width
from pyg_batchgnn.nn.native_conv import NativeConv, input_columns, positive, refuse

# The symmetric normalisation D^-1/2 (A + I) D^-1/2 of equation 2, once per minibatch.
#
# A degree counts the sampled in-edges and the loop. Edges that are loops are treated as in PyG's
# ``gcn_norm``. Without weights they are replaced by one loop of weight 1, also if ``improved``.
# With weights the loop of a node gets the weight of its last such edge, and other loops 1, or 2
# if ``improved``.


@dataclass(frozen=True)
class Scaling:
    """The normalisation of a whole minibatch: factors of edges and nodes. Layers take prefixes."""

    in_edges: ops.InEdges  # the E' edges, without self loops if these are added separately
    edge_weight: Tensor | None  # [E'], or None if all are 1
    # [N], the factor of sources and of targets; None if it is part of ``edge_weight``.
    node: Tensor | None
    loop: Tensor | None  # [N], the weight of a node's own row; None without loops

    def layer(self, graph: LayerGraph) -> LayerGraph:
        """Returns a layer's edges, without self loops that are added separately."""
        if self.in_edges.indptr.data_ptr() == graph.indptr.data_ptr():
            return graph
        indptr = ops.prefix(self.in_edges.indptr, graph.num_targets + 1)
        in_edges = ops.InEdges(indptr, ops.prefix(self.in_edges.indices, int(indptr[-1])))
        return replace(graph, in_edges=in_edges)


#: The normalisations of graphs without edge weights, by whether loops are added, and dtype.
_unweighted: WeakKeyDictionary[LayerGraph, dict[tuple[bool, torch.dtype], Scaling]] = WeakKeyDictionary()


def unweighted_scaling(whole: LayerGraph, add_loops: bool, dtype: torch.dtype) -> Scaling:
    """Returns the normalisation of a graph without edge weights, the same object on every call."""
    made = _unweighted.setdefault(whole, {})
    if (add_loops, dtype) in made:
        return made[add_loops, dtype]
    edges = ops.InEdges(whole.indptr, whole.indices)
    if add_loops and (without := ops.drop_self_loops(whole.indptr, whole.indices)):
        edges, _ = without
    loops = int(add_loops)

    def scale(root: bool) -> Tensor:
        if whole.degree is not None:
            degree = (whole.degree + loops).to(dtype)
            found = degree.rsqrt() if root else degree.reciprocal()
            return found.masked_fill_(degree == 0, 0.0)
        return ops.degree_scale(edges.indptr, whole.num_sources, loops=loops, root=root, dtype=dtype)

    loop = scale(root=False) if add_loops else None
    found = Scaling(edges, None, scale(root=True), loop)
    return made.setdefault((add_loops, dtype), found)


def weighted_scaling(whole: LayerGraph, weight: Tensor, add_loops: bool, fill: float) -> Scaling:
    """Returns the normalisation of a graph with edge weights [E], differentiable in them."""
    edges, targets = ops.InEdges(whole.indptr, whole.indices), whole.targets
    degree = weight.new_zeros(whole.num_sources)
    loop = None
    if add_loops:
        loop = weight.new_full((whole.num_sources,), fill)
        if without := ops.drop_self_loops(whole.indptr, whole.indices):
            is_loop = whole.indices == targets
            loop = loop.index_put((targets[is_loop],), weight[is_loop])
            edges, kept = without
            weight, targets = weight.index_select(0, kept), targets.index_select(0, kept)
        degree = degree + loop
    degree = degree.index_add(0, targets, weight) if whole.degree is None else whole.degree.to(weight.dtype)
    scale = degree.pow(-0.5)
    scale = scale.masked_fill(scale == float("inf"), 0.0)
    normalised = scale.index_select(0, edges.indices) * weight * scale.index_select(0, targets)
    return Scaling(edges, normalised, None, None if loop is None else scale * loop * scale)


class GCNConv(NativeConv, torch_geometric.nn.GCNConv):
    """PyG's `GCNConv` with the same arguments, initialisation and ``state_dict``; rows are read in
    place.

    A layer of a minibatch equals PyG's ``gcn_norm`` on the whole minibatch and then a `GCNConv`
    with ``normalize=False`` on the edges of the layer and the self loops of its targets. Without
    edge weights degrees scale the rows in the sum, so no weight per edge is stored.

    >>> GCNConv(data.num_features, 16)(data.x, data.edge_index).shape
    torch.Size([100, 16])

    Args:
        in_channels: columns of x; -1 takes them from the first call.
        out_channels: columns of the result.
        improved: fills in weighted self loops with 2, as PyG does. Ignored without edge weights.
        cached: must be False. The normalisation of a minibatch is kept as long as the minibatch.
        add_self_loops: adds a loop for every node; the value of ``normalize`` where None.
        normalize: normalises by degrees.
        bias: adds a bias.
        **kwargs: the other arguments of PyG, at their default values.
    """

    edge_values: ClassVar[str | None] = "edge_weight"
    read_parts: ClassVar[dict[str, bool]] = {"lin": False}

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        improved: bool = False,
        cached: bool = False,
        add_self_loops: bool | None = None,
        normalize: bool = True,
        bias: bool = True,
        **kwargs: Any,
    ) -> None:
        columns = input_columns("in_channels", in_channels), positive("out_channels", out_channels)
        super().__init__(*columns, improved, cached, add_self_loops, normalize, bias, **kwargs)
        self.check(self)

    @classmethod
    def check(cls, conv: MessagePassing) -> None:
        if conv.cached or conv._cached_edge_index is not None:
            remedy = "leave it out: a normalisation is kept as long as its minibatch or edge_index anyway"
            raise refuse(conv, "cached=True, which would apply one minibatch's degrees to all others", remedy)
        super().check(conv)

    def forward(
        self,
        x: Rows | Aggregated,
        edge_index: Edges,
        layer: int | Tensor | None = None,
        edge_weight: Tensor | None = None,
        *,
        update: Update | None = None,
    ) -> Tensor:
        """Returns the rows of the layer's targets, from the arguments of `SAGEConv.forward` and
        these.

        Args:
            x: a tensor, a `RowView` or `Aggregated`, not a pair (sources, targets).
            layer: PyG's ``edge_weight`` is accepted in this place.
            edge_weight: [E], for all edges of the minibatch in its order, or of ``edge_index``.

        Returns:
            [D, out_channels] of the dtype of the weights; bfloat16 under autocast.
        """
        return convolve(self, x, edge_index, layer, None, update, edge_weight=edge_weight)

    def terms(self, given: ConvInput, edge_weight: Tensor | None = None) -> Terms:
        if not given.targets_in_sources:
            what = "separate rows of sources and targets"
            raise refuse(self, what, "take SAGEConv for bipartite graphs")
        set_width(given.x, self.lin)
        weight, dtype = self.lin.weight, ops.compute_dtype(self.lin.weight)
        check_input(given.x, weight.size(1), dtype)
        return Terms((RowProduct(self._aggregate(given, edge_weight, dtype), weight),), bias=self.bias)

    @property
    def fill(self) -> float:
        return 2.0 if self.improved else 1.0

    def known_terms(
        self, x: Aggregated, _: LayerGraph, edge_weight: Tensor | None = None
    ) -> tuple[Terms, None]:
        if edge_weight is not None or not self.normalize or not self.add_self_loops:
            raise refuse_aggregated(self, "they are normalised, without edge weights and with self loops")
        neighbours = x.of(self, "symmetric")
        set_width(neighbours, self.lin)
        check_input(neighbours, self.lin.weight.size(1), ops.compute_dtype(self.lin.weight), "aggregates")
        return Terms((RowProduct(neighbours, self.lin.weight),), bias=self.bias), None

    def _aggregate(self, given: ConvInput, edge_weight: Tensor | None, dtype: torch.dtype) -> Tensor:
        """Returns [D, in_channels], the normalised sums over in-edges and loops. Every layer is
        normalised by the edges of the whole minibatch, which its first layer has."""
        scaling = self._scaling(given.graph.whole or given.graph, edge_weight, ops.wide_dtype(dtype))
        graph, (table, row) = scaling.layer(given.graph), table_and_row(given.x)
        targets, edges = graph.num_targets, graph.num_edges
        return ops.aggregate(
            table,
            graph.indptr,
            graph.indices,
            row=row,
            edge_weight=None if scaling.edge_weight is None else scaling.edge_weight[:edges],
            source_scale=scaling.node,
            target_scale=None if scaling.node is None else scaling.node[:targets],
            self_scale=None if scaling.loop is None else scaling.loop[:targets],
            by_source=graph.by_source_for(table),
            out_dtype=dtype,
        )

    def _scaling(self, whole: LayerGraph, edge_weight: Tensor | None, dtype: torch.dtype) -> Scaling:
        if self.normalize and isinstance(whole, HaloGraph):
            what = "historical embeddings with normalize=True: rows depend on the degrees in their minibatch"
            raise refuse(self, what, "take SAGEConv, GINConv or GATConv, or normalize=False")
        if edge_weight is None:
            if self.normalize:
                return unweighted_scaling(whole, bool(self.add_self_loops), dtype)
            return Scaling(whole.in_edges, None, None, None)
        weight = whole.edge_weights(edge_weight, dtype)
        if self.normalize:
            return weighted_scaling(whole, weight, bool(self.add_self_loops), self.fill)
        return Scaling(whole.in_edges, weight, None, None)
