"""A layer whose weights a network makes of each edge's features (Gilmer et al. 2017)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing

from pyg_batchgnn import ops
from pyg_batchgnn.nn.aggregated import Aggregated, edge_input
from pyg_batchgnn.nn.inputs import ConvInput, Edges, Rows, check_input, table_of
from pyg_batchgnn.nn.linear import Linear, is_watched, set_width
from pyg_batchgnn.nn.native_conv import NativeConv, refuse
from pyg_batchgnn.nn.terms import RowProduct, Terms, Update, total

#: The most input columns of the last linear layer. The sums of a target have as many times the
#: columns of x.
_MOST_COLUMNS = 64


class NNConv(NativeConv, torch_geometric.nn.NNConv):
    """PyG's `NNConv` with sum or mean, where the edge network is a linear layer or a ``Sequential``
    that ends in one, with at most 64 input columns.

    With h(e) for the input of that layer, the weight of an edge is a sum of basis matrices, W_0 +
    sum over k of h_k(e) * W_k. So the sums of h_k(e) * x[j] come before the products with the
    basis, which are one product for each target. No weight of an edge is ever made.

    >>> conv = NNConv(data.num_features, 16, torch.nn.Linear(4, data.num_features * 16))
    >>> conv(data.x, data.edge_index, torch.rand(data.num_edges, 4)).shape
    torch.Size([100, 16])

    Args:
        in_channels: columns of x, or (of sources, of targets).
        out_channels: columns of the result.
        nn: the edge network, from edge features to in_channels * out_channels columns.
        aggr: "add" or "mean".
        root_weight: adds a product of the root nodes' features.
        bias: adds a bias.
        **kwargs: the other arguments of PyG, at their default values.
    """

    edge_values: ClassVar[str | None] = "edge_attr"
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
        what = cls.reason_against(conv)
        if what is not None:
            raise refuse(conv, what, "use torch_geometric.nn.NNConv")

    @staticmethod
    def reason_against(conv: Any) -> str | None:
        """Returns what a layer of PyG's has that the native one does not support."""
        last = last_linear(conv.nn)
        if type(last) not in (torch.nn.Linear, torch_geometric.nn.Linear, Linear):
            return f"an edge network that ends in {type(last).__name__} and not in a linear layer"
        outputs, columns = last.weight.shape
        if columns > _MOST_COLUMNS:
            most = f"it may have {_MOST_COLUMNS}"
            return f"an edge network whose last linear layer has {columns} input columns, {most}"
        if outputs != conv.in_channels_l * conv.out_channels:
            return (
                f"an edge network of {outputs} columns for {conv.in_channels_l} x {conv.out_channels} weights"
            )
        watched = [type(one).__name__ for one in (conv.nn, last) if is_watched(one)]
        return f"hooks on the {watched[0]} that makes weights" if watched else None

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
        """Returns the rows of the targets, [D, out_channels], from the arguments of
        `GATConv.forward`."""
        self.check_call()
        given, edge_attr = edge_input(self, x, edge_index, layer, edge_attr, size)
        own = given.own_rows() if self.root_weight else None
        return total([self.terms(given, edge_attr)], own, given.graph, update, self.training)

    def terms(self, given: ConvInput, edge_attr: Tensor | None = None) -> Terms:
        if edge_attr is None:
            raise ValueError("NNConv reads edge_attr, the features of edges, but it is not given")
        what = self.reason_against(self)  # somebody may watch the edge network since the last check
        if what is not None:
            raise refuse(self, what, "use torch_geometric.nn.NNConv")
        graph, x, last = given.graph, given.x, last_linear(self.nn)
        own = given.own_rows() if self.root_weight else None
        dtype = ops.compute_dtype(last.weight)
        check_input(x, self.in_channels_l, dtype)
        if own is not None:
            set_width(own, self.lin)
            check_input(own, self.lin.weight.size(1), dtype, "rows of the targets")
        table, row = table_of(x, dtype)
        features = graph.edge_rows(edge_attr, edge_attr.size(-1), last.weight.dtype)
        for part in () if last is self.nn else list(self.nn)[:-1]:
            features = part(features)
        basis = last.weight
        if last.bias is not None:  # W_0 counts once for each edge
            features = torch.cat([features, features.new_ones(features.size(0), 1)], dim=1)
            basis = torch.cat([basis, last.bias.unsqueeze(1)], dim=1)
        sums = ops.weighted_sums(
            table,
            graph.indptr,
            graph.indices,
            features.to(ops.wide_dtype(table.dtype)).contiguous(),
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
    """Returns the last layer of an edge network."""
    is_sequence = type(network) is torch.nn.Sequential and len(network) > 0
    return network[len(network) - 1] if is_sequence else network
