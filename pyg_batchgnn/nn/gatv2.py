"""Graph attention whose scores are not linear (Brody, Alon and Yahav 2022)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing

from pyg_batchgnn import ops
from pyg_batchgnn.nn.aggregated import Aggregated
from pyg_batchgnn.nn.gat import AttentionCall, AttentionConv, Fill
from pyg_batchgnn.nn.inputs import ConvInput, Edges, Rows, check_input
from pyg_batchgnn.nn.linear import set_width
from pyg_batchgnn.nn.native_conv import input_columns, positive, probability, refuse
from pyg_batchgnn.nn.terms import Terms, Update, total


class GATv2Conv(AttentionConv, torch_geometric.nn.GATv2Conv):
    """PyG's `GATv2Conv` with the same arguments, initialisation and ``state_dict``.

    Every source is multiplied once. The sums of the rows of source, target and edge are computed in
    both passes, so that nothing of their size is kept. The arguments are those of `GATConv`; the
    bias is added to the products too.

    Args:
        share_weights: multiplies targets by the weight of sources.
    """

    read_parts: ClassVar[dict[str, bool]] = {"lin_l": True, "lin_r": True, "lin_edge": False, "res": False}

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        edge_dim: int | None = None,
        fill_value: Fill = "mean",
        bias: bool = True,
        share_weights: bool = False,
        residual: bool = False,
        **kwargs: Any,
    ) -> None:
        columns = input_columns("in_channels", in_channels), positive("out_channels", out_channels)
        heads, drop = positive("heads", heads), probability("dropout", dropout)
        super().__init__(
            *(*columns, heads, concat, negative_slope, drop, add_self_loops, edge_dim, fill_value, bias),
            *(share_weights, residual),
            **kwargs,
        )
        self.check(self)

    @classmethod
    def check(cls, conv: MessagePassing) -> None:
        super().check(conv)
        if conv.share_weights and conv.lin_r is not conv.lin_l:
            raise refuse(conv, "share_weights with two linear layers", "give it when the layer is made")

    def forward(
        self,
        x: Rows | Aggregated | tuple[Rows, Rows | None],
        edge_index: Edges,
        layer: int | Tensor | None = None,
        edge_attr: Tensor | None = None,
        return_attention_weights: bool | None = None,
        *,
        update: Update | None = None,
    ) -> Tensor | tuple[Tensor, tuple[Tensor, Tensor]]:
        """Returns the rows of the targets, from the arguments of `GATConv.forward`."""
        call = self._call(x, edge_index, layer, edge_attr)
        values, weights = self._values(call, bool(return_attention_weights))
        result = total([Terms(values=values)], None, call.graph, update, self.training)
        return result if weights is None else (result, call.pyg_form(weights))

    def terms(self, given: ConvInput, edge_attr: Tensor | None = None) -> Terms:
        return Terms(values=self._values(self._call_of(given, edge_attr), wants_weights=False)[0])

    def _values(self, call: AttentionCall, wants_weights: bool) -> tuple[Tensor, Tensor | None]:
        """Returns the rows of the targets, [D, columns], and the weights, [slots, H]."""
        own = call.given.own_rows()
        if own is None:
            raise ValueError("GATv2Conv needs the rows of the targets; give x as (sources, targets)")
        set_width(call.given.x, self.lin_l)
        set_width(own, self.lin_r, self.res)
        x, dtype = call.given.x, ops.compute_dtype(self.att)
        check_input(x, self.lin_l.weight.size(1), dtype)
        check_input(own, self.lin_r.weight.size(1), dtype, "rows of the targets")
        source = _product(x, self.lin_l, dtype)
        shares = self.share_weights and call.given.targets_in_sources
        target = source[: call.graph.num_targets] if shares else _product(own, self.lin_r, dtype)
        attended, weights = self._attend(source, target, call), None
        if wants_weights:
            weights = ops.attention_weights(attended.coefficient, call.graph.indptr, **call.options())
        out = attended.out
        if not self.concat:
            out = out.unflatten(1, (self.heads, self.out_channels)).mean(dim=1)
        if self.res is not None:
            out = out + ops.linear([own], [self.res.weight], num_rows=out.size(0), out_dtype=out.dtype)
        return out if self.bias is None else out + self.bias.to(out.dtype), weights

    def _attend(self, source: Tensor, target: Tensor, call: AttentionCall) -> ops.Attention:
        """Returns the weighted sums of all heads, [D, H * C]."""
        graph, wide = call.graph, ops.wide_dtype(source.dtype)
        features, edge_weight = self._edge_features(call, wide), None
        if features is not None:
            edge_weight = self.lin_edge.weight.to(wide).t().contiguous()
        return ops.additive_attention(
            source,
            graph.indptr,
            graph.indices,
            self.att.view(self.heads, self.out_channels).to(wide),
            target.to(wide),
            None if features is None else call.spread(*features),
            edge_weight,
            by_source=graph.by_source_for(source),
            negative_slope=self.negative_slope,
            **call.options(),
        )


def _product(rows: Rows, linear: Any, dtype: Any) -> Tensor:
    return ops.linear([rows], [linear.weight], linear.bias, num_rows=rows.size(0), out_dtype=dtype)
