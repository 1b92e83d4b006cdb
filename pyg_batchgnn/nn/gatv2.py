"""Graph attention whose scores are not linear (Brody, Alon and Yahav 2022)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing

from pyg_batchgnn import ops
from pyg_batchgnn.nn.gat import AttentionCall, AttentionConv, Fill
from pyg_batchgnn.nn.inputs import Rows, check_input
from pyg_batchgnn.nn.layer_steps import Terms
from pyg_batchgnn.nn.modules import set_width
from pyg_batchgnn.nn.native_conv import input_columns, positive, probability, refuse


class GATv2Conv(AttentionConv, torch_geometric.nn.GATv2Conv):
    """PyG's `GATv2Conv` with the same arguments (see `GATConv`), initialisation and ``state_dict``.

    Every source is multiplied once. The sum of the source's, target's and edge's rows is computed
    in both passes, and not stored. The bias is added to the products, too.

    >>> GATv2Conv(data.num_features, 8, heads=2)(data.x, data.edge_index).shape
    torch.Size([100, 16])

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

    def _attended(self, call: AttentionCall) -> tuple[Terms, Tensor]:
        own = call.given.own_rows()
        if own is None:
            raise ValueError("GATv2Conv needs the rows of the targets; give x as (sources, targets)")
        set_width(call.given.x, self.lin_l)
        set_width(own, self.lin_r, self.res)
        x, dtype = call.given.x, ops.compute_dtype(self.att)
        check_input(x, self.lin_l.weight.size(1), dtype)
        check_input(own, self.lin_r.weight.size(1), dtype, "rows of the targets")
        source = _product(x, self.lin_l, dtype)
        graph, wide = call.graph, ops.wide_dtype(dtype)
        shares = self.share_weights and call.given.targets_in_sources
        target = source[: graph.num_targets] if shares else _product(own, self.lin_r, dtype)
        edge_rows, edge_weight = self._edge_rows(call, wide), None
        if edge_rows is not None:
            edge_weight = self.lin_edge.weight.to(wide).t().contiguous()
        attended = ops.additive_attention(
            source,
            graph.indptr,
            graph.indices,
            self.att.view(self.heads, self.out_channels).to(wide),
            target.to(wide),
            edge_rows,
            edge_weight,
            by_source=graph.by_source_for(source),
            negative_slope=self.negative_slope,
            **call.options(),
        )
        out, root = attended.out, None if self.res is None else self.res.weight
        if not self.concat:
            out = out.unflatten(1, (self.heads, self.out_channels)).mean(dim=1)
        return Terms(root=root, bias=self.bias, values=out), attended.coefficient


def _product(rows: Rows, linear: Any, dtype: Any) -> Tensor:
    return ops.linear([rows], [linear.weight], linear.bias, num_rows=rows.size(0), out_dtype=dtype)
