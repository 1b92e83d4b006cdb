"""GCN (Kipf and Welling 2017), normalised once for the whole minibatch."""

from __future__ import annotations

from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from pyg_batchgnn import ops
from pyg_batchgnn.nn.aggregated import Aggregated, all_nodes, refuse_aggregated
from pyg_batchgnn.nn.graph import LayerGraph, is_sampled, layer_graph
from pyg_batchgnn.nn.inputs import ConvInput, Edges, Rows, conv_input, sampled
from pyg_batchgnn.nn.normalisation import Scaling, unweighted_scaling, weighted_scaling
from pyg_batchgnn.nn.precision import check_input
from pyg_batchgnn.nn.refusals import check_called, check_constructed, refuse
from pyg_batchgnn.nn.rows import RowView
from pyg_batchgnn.nn.update import Update, update_arguments


class GCNConv(torch_geometric.nn.GCNConv):
    """PyG's `GCNConv`: same arguments, initialisation and ``state_dict``; rows are read where they lie.

    A layer of a minibatch equals PyG's ``gcn_norm`` on the whole minibatch, then a `GCNConv` with
    ``normalize=False`` on the layer's edges and its targets' self loops. Degrees are counted once a
    minibatch, and without edge weights they scale rows while these are summed, so that no weight an edge is
    ever stored.

    Args:
        in_channels: columns of x; -1 takes them from the first call.
        out_channels: columns of the result.
        improved: as in PyG, weighted self loops are filled in with 2 (without weights it changes nothing).
        cached: only False: a minibatch's normalisation is kept as long as the minibatch is.
        add_self_loops: as ``normalize`` where None.
        normalize: whether to normalise at all.
        bias: whether there is one.
        **kwargs: PyG's further ones, at their default values.

    Raises:
        ValueError: what PyG's layer can do and this one cannot.
    """

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
        if cached:
            remedy = "leave it out: a normalisation is kept as long as its minibatch or edge_index anyway"
            raise refuse(self, "cached=True, which would apply one minibatch's degrees to all others", remedy)
        if kwargs.get("aggr", "add") not in ("add", "sum"):
            raise refuse(self, f"aggr={kwargs['aggr']!r}", "use torch_geometric.nn.GCNConv")
        super().__init__(
            in_channels, out_channels, improved, cached, add_self_loops, normalize, bias, **kwargs
        )
        check_constructed(self)

    def forward(
        self,
        x: Rows | Aggregated,
        edge_index: Edges,
        layer: int | Tensor | None = None,
        edge_weight: Tensor | None = None,
        *,
        update: Update | None = None,
    ) -> Tensor:
        """Rows of the layer's targets.

        Args:
            x: [>= N, in_channels], a tensor or a `RowView`; or `Aggregated`, with which the minibatch's nodes
                are all computed.
            edge_index: a minibatch with ``layer``, or [2, E] with sources above targets.
            layer: of the minibatch, 1 nearest the input. (PyG's ``edge_weight`` in this place is understood.)
            edge_weight: [E] for all edges of the minibatch, in its order, or of ``edge_index``.
            update: what follows, in the same pass.

        Returns:
            [D, out_channels] of the weights' dtype; bfloat16 under autocast.
        """
        check_called(self)
        if isinstance(x, Aggregated):
            known = self._known(x, edge_weight)
            return self._product(known, all_nodes(sampled(edge_index)), update)
        if isinstance(layer, Tensor):
            layer, edge_weight = None, layer
        if isinstance(x, (tuple, list)):
            raise refuse(self, "rows of sources and targets apart", "take SAGEConv for bipartite graphs")
        given = conv_input(x, edge_index, layer)
        if is_uninitialized_parameter(self.lin.weight):
            self.lin.initialize_parameters(self.lin, (given.x,))
        dtype = ops.compute_dtype(self.lin.weight)
        check_input(given.x, self.lin.in_channels, dtype)
        aggregated = self._aggregate(given, _whole(edge_index, given.graph), edge_weight, dtype)
        return self._product(aggregated, given.graph, update)

    def _product(self, aggregated: Rows, graph: LayerGraph, update: Update | None) -> Tensor:
        """The product of the aggregates, and what follows."""
        return ops.linear(
            [aggregated],
            [self.lin.weight],
            self.bias,
            num_rows=graph.num_targets,
            out_dtype=ops.compute_dtype(self.lin.weight),
            **update_arguments(update, graph, self.training),
        )

    def _known(self, x: Aggregated, edge_weight: Tensor | None) -> Rows:
        """What `_aggregate` gives, made beforehand with the degrees of the whole graph."""
        if edge_weight is not None or not self.normalize or not self.add_self_loops:
            raise refuse_aggregated(self, "they are normalised, without edge weights and with self loops")
        neighbours = x.of(self, "symmetric")
        if is_uninitialized_parameter(self.lin.weight):
            self.lin.initialize_parameters(self.lin, (neighbours,))
        check_input(neighbours, self.lin.in_channels, ops.compute_dtype(self.lin.weight), "aggregates")
        return neighbours

    def _aggregate(
        self, given: ConvInput, whole: LayerGraph, edge_weight: Tensor | None, dtype: torch.dtype
    ) -> Tensor:
        """Normalised sums over in-edges and loops, [D, in_channels]."""
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        scaling = self._scaling(whole, edge_weight, wide)
        graph = scaling.layer(given.graph)
        table, row = (given.x.table, given.x.row) if isinstance(given.x, RowView) else (given.x, None)
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
            by_source=graph.by_source if table.requires_grad else (),
            out_dtype=dtype,
        )

    def _scaling(self, whole: LayerGraph, edge_weight: Tensor | None, dtype: torch.dtype) -> Scaling:
        if edge_weight is None:
            if self.normalize:
                return unweighted_scaling(whole, bool(self.add_self_loops), dtype)
            return Scaling(whole.in_edges, None, None, None)
        if edge_weight.dim() != 1 or edge_weight.numel() != whole.num_edges:
            shape, edges = list(edge_weight.shape), whole.num_edges
            raise ValueError(f"edge_weight must be [{edges}], an entry for every edge, got {shape}")
        weight = edge_weight.to(dtype)
        if self.normalize:
            fill = 2.0 if self.improved else 1.0
            return weighted_scaling(whole, weight, bool(self.add_self_loops), fill)
        ordered = weight if whole.edge is None else weight.index_select(0, whole.edge)
        return Scaling(whole.in_edges, ordered, None, None)


def _whole(edges: Edges, graph: LayerGraph) -> LayerGraph:
    """All edges of the minibatch that a layer belongs to; of a graph held whole the graph itself."""
    return layer_graph(edges, 1) if is_sampled(edges) else graph
