"""Layers that read features of edges: GINE (Hu et al. 2020), and weights that a network makes of
them (Gilmer et al. 2017)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing

from pyg_batchgnn import ops
from pyg_batchgnn.nn.aggregated import Aggregated
from pyg_batchgnn.nn.gin import OverSums
from pyg_batchgnn.nn.inputs import ConvInput, Edges, Rows, check_input, table_of
from pyg_batchgnn.nn.layer_steps import RowProduct, Terms, Update, convolve
from pyg_batchgnn.nn.modules import Linear, is_watched, set_width
from pyg_batchgnn.nn.native_conv import NativeConv, refuse

#: The most sums of a target's neighbours, the input columns of the last layer of an edge network.
_MOST_COLUMNS = 64


class _OfEdges(NativeConv):
    edge_values: ClassVar[str | None] = "edge_attr"

    def forward(
        self,
        x: Rows | Aggregated | tuple[Rows, Rows | None],
        edge_index: Edges,
        layer: int | Tensor | None = None,
        edge_attr: Tensor | None = None,
        size: tuple[int, int] | None = None,
        *,
        update: Update | None = None,
    ) -> Tensor:
        """Returns the rows of the targets of the layer, from the arguments of `GATConv.forward`."""
        return convolve(self, x, edge_index, layer, size, update, edge_attr=edge_attr)


class GINEConv(_OfEdges, OverSums, torch_geometric.nn.GINEConv):
    """PyG's `GINEConv`: ``nn((1 + eps) * x[i] + sum of relu(x[j] + lin(edge_attr[e])))`` over the
    in-edges e from j to i. No message is stored. With up to 16 columns of edge features their
    product with ``lin`` is not stored either.

    >>> conv = GINEConv(torch.nn.Linear(data.num_features, 16), edge_dim=4)
    >>> conv(data.x, data.edge_index, torch.rand(data.num_edges, 4)).shape
    torch.Size([100, 16])

    Args:
        nn, eps, train_eps, **kwargs: as in `GINConv`.
        edge_dim: columns of edge features; None if they have as many as x, without ``lin``.
    """

    read_parts: ClassVar[dict[str, bool]] = {"lin": True}

    def __init__(
        self,
        nn: torch.nn.Module,
        eps: float = 0.0,
        train_eps: bool = False,
        edge_dim: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(nn, eps, train_eps, edge_dim, **kwargs)
        self.check(self)

    def terms(self, given: ConvInput, edge_attr: Tensor | None = None) -> Terms:
        graph, x, dtype = given.graph, given.x, self._dtype()
        check_input(x, x.size(1), dtype)
        table, row = table_of(x, dtype)
        wide, weight, shared, columns = ops.wide_dtype(table.dtype), None, None, x.size(1)
        if self.lin is not None:
            set_width(edge_attr, self.lin)
            weight = self.lin.weight.to(wide).t().contiguous()
            check_input(x, weight.size(1), dtype)
            columns = weight.size(0)
            if self.lin.bias is not None:
                shared = self.lin.bias.to(wide).expand(graph.num_targets, -1)
        sums = ops.edge_sums(
            table,
            graph.indptr,
            graph.indices,
            target_rows=shared,
            edge_rows=graph.edge_rows(edge_attr, columns, wide).contiguous(),
            edge_weight=weight,
            row=row,
            by_source=graph.by_source_for(table),
            out_dtype=dtype,
        )
        return self.terms_of(self.with_own(sums, given.own_rows()), None)


class NNConv(_OfEdges, torch_geometric.nn.NNConv):
    """PyG's `NNConv` with sum or mean. The edge network must be a linear layer, or a ``Sequential``
    that ends in one, with at most 64 input columns.

    With the input h(e) of that last layer, the weight of an edge is a sum of matrices, W_0 + sum
    over k of h_k(e) * W_k. So h_k(e) * x[j] is summed over the in-edges first, and then multiplied
    by W_k, once for each target. No weight of an edge is ever made.

    >>> conv = NNConv(data.num_features, 16, torch.nn.Linear(4, data.num_features * 16))
    >>> conv(data.x, data.edge_index, torch.rand(data.num_edges, 4)).shape
    torch.Size([100, 16])

    Args:
        nn: the edge network, from edge features to in_channels * out_channels columns.
        aggr: "add" or "mean".
        in_channels, out_channels, root_weight, bias, **kwargs: as in `SAGEConv`.
    """

    read_parts: ClassVar[dict[str, bool]] = {"lin": False}
    aggregations: ClassVar[dict[type[torch.nn.Module], str]] = {
        torch_geometric.nn.SumAggregation: "sum",
        torch_geometric.nn.MeanAggregation: "mean",
    }

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        nn: torch.nn.Module,
        aggr: str = "add",
        root_weight: bool = True,
        bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(in_channels, out_channels, nn, aggr, root_weight, bias, **kwargs)
        self.check(self)

    @classmethod
    def check(cls, conv: MessagePassing) -> None:
        super().check(conv)
        if (what := cls.reason_against(conv)) is not None:
            raise refuse(conv, what, "use torch_geometric.nn.NNConv")

    @staticmethod
    def reason_against(conv: Any) -> str | None:
        """Returns why the native layer cannot replace this layer of PyG's; None if it can."""
        last = last_linear(conv.nn)
        if type(last) not in (torch.nn.Linear, torch_geometric.nn.Linear, Linear):
            return f"an edge network that ends in {type(last).__name__} and not in a linear layer"
        if (columns := last.weight.size(1)) > _MOST_COLUMNS:
            return f"an edge network whose last layer has {columns} input columns, over {_MOST_COLUMNS}"
        watched = [type(one).__name__ for one in (conv.nn, last) if is_watched(one)]
        return f"hooks on the {watched[0]} that makes weights" if watched else None

    def terms(self, given: ConvInput, edge_attr: Tensor | None = None) -> Terms:
        self.check(self)  # somebody may watch the edge network since the last check
        graph, x, last = given.graph, given.x, last_linear(self.nn)
        own = given.own_rows() if self.root_weight else None
        dtype = ops.compute_dtype(last.weight)
        check_input(x, self.in_channels_l, dtype)
        if own is not None:
            set_width(own, self.lin)
            check_input(own, self.lin.weight.size(1), dtype, "rows of the targets")
        table, row = table_of(x, dtype)
        features = graph.edge_rows(edge_attr, None, last.weight.dtype)
        for part in () if last is self.nn else list(self.nn)[:-1]:
            features = part(features)
        basis = last.weight
        if last.bias is not None:  # W_0 counts once for each edge
            features = torch.cat([features, features.new_ones(features.size(0), 1)], dim=1)
            basis = torch.cat([basis, last.bias.unsqueeze(1)], dim=1)
        sums = ops.edge_sums(
            table,
            graph.indptr,
            graph.indices,
            weight=features.to(ops.wide_dtype(table.dtype)).contiguous(),
            row=row,
            by_source=graph.by_source_for(table),
            out_dtype=dtype,
        )
        if self.aggregations[type(self.aggr_module)] == "mean":
            sums = sums / graph.in_edges.degrees.clamp(min=1).unsqueeze(1)
        weight = basis.view(self.in_channels_l, self.out_channels, -1).permute(1, 2, 0)
        root = self.lin.weight if self.root_weight else None
        return Terms((RowProduct(sums, weight.reshape(self.out_channels, -1)),), root, self.bias)


def last_linear(network: Any) -> Any:
    is_sequence = type(network) is torch.nn.Sequential and len(network) > 0
    return network[len(network) - 1] if is_sequence else network
