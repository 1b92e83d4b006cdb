"""Graph attention whose scores are not linear (Brody, Alon and Yahav 2022)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing

from pyg_batchgnn import ops
from pyg_batchgnn.nn.aggregated import Aggregated
from pyg_batchgnn.nn.gat import AttentionCall, AttentionConv, Fill
from pyg_batchgnn.nn.inputs import ConvInput, Edges, Rows, check_input
from pyg_batchgnn.nn.layer_edges import LayerGraph
from pyg_batchgnn.nn.linear import set_width
from pyg_batchgnn.nn.native_conv import input_columns, positive, probability, refuse
from pyg_batchgnn.nn.terms import Terms, Update, total

#: Bytes of the sums of a block of edges, which stay in the cache of a core.
_BLOCK_BYTES = 1 << 20


def _sums_of_edges(
    source: Tensor, target: Tensor, edge: Tensor | None, graph: LayerGraph, dtype: torch.dtype
) -> Iterator[tuple[slice, Tensor]]:
    """Yields the places of a block of edges, and source[j] + target[i] + edge[e] of each."""
    edges, block = graph.num_edges, max(1, _BLOCK_BYTES // max(1, source.size(1) * dtype.itemsize))
    for at in range(0, edges, block):
        place = slice(at, min(edges, at + block))
        sums = source.index_select(0, graph.indices[place]).to(dtype)
        sums += target.index_select(0, graph.targets[place])
        if edge is not None:
            sums += edge[place]
        yield place, sums


class _EdgeScores(torch.autograd.Function):
    """Computes ``attention[h] . leaky_relu(source[j, h] + target[i, h] + edge[e, h])``, [E, H], for
    the edges e from j to i of a layer. The backward pass computes the sums again, so that they are
    never kept."""

    @staticmethod
    def forward(
        ctx: Any,
        source: Tensor,
        target: Tensor,
        edge: Tensor | None,
        attention: Tensor,
        graph: LayerGraph,
        slope: float,
    ) -> Tensor:
        ctx.save_for_backward(source, target, edge, attention)
        ctx.graph, ctx.slope = graph, slope
        scores = attention.new_empty(graph.num_edges, attention.size(0))
        for place, sums in _sums_of_edges(source, target, edge, graph, attention.dtype):
            by_head = torch.nn.functional.leaky_relu_(sums, slope).view(-1, *attention.shape)
            torch.sum(by_head.mul_(attention), dim=2, out=scores[place])
        return scores

    @staticmethod
    @ops.first_order
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        source, target, edge, attention = ctx.saved_tensors
        graph, slope = ctx.graph, ctx.slope
        grad = grads[0].contiguous()
        of_sums = attention.new_empty(graph.num_edges, source.size(1))
        of_attention = torch.zeros_like(attention)
        for place, sums in _sums_of_edges(source, target, edge, graph, attention.dtype):
            weight, out = grad[place].unsqueeze(2), of_sums[place]
            torch.mul(attention, weight, out=out.view(-1, *attention.shape))
            torch.ops.aten.leaky_relu_backward.grad_input(out, sums, slope, False, grad_input=out)
            values = torch.nn.functional.leaky_relu_(sums, slope).view(-1, *attention.shape)
            of_attention += values.mul_(weight).sum(dim=0)
        return (
            _summed(of_sums, graph.by_source.ptr, graph.by_source.edge, source)
            if ctx.needs_input_grad[0]
            else None,
            _summed(of_sums, graph.indptr, None, target) if ctx.needs_input_grad[1] else None,
            of_sums.to(edge.dtype) if ctx.needs_input_grad[2] else None,
            of_attention,
            None,
            None,
        )


def _summed(rows: Tensor, ptr: Tensor, order: Tensor | None, like: Tensor) -> Tensor:
    """Returns the sums of rows of edges by node, in a fixed order; ``order`` sorts them by node."""
    places = torch.arange(rows.size(0)) if order is None else order
    return ops.aggregate(rows, ptr, places, out_dtype=rows.dtype).to(like.dtype)


class GATv2Conv(AttentionConv, torch_geometric.nn.GATv2Conv):
    """PyG's `GATv2Conv` with the same arguments, initialisation and ``state_dict``.

    Every source is multiplied once. The sums of the rows of source and target are computed edge by
    edge in both passes, so that nothing of their size is kept. The arguments are those of
    `GATConv`; the bias is added to the products too.

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
        heads, weights = self._attend(source, self._logits(source, target, call), call, wants_weights)
        out = self._concat(heads)
        if self.res is not None:
            out = out + ops.linear([own], [self.res.weight], num_rows=out.size(0), out_dtype=out.dtype)
        return out if self.bias is None else out + self.bias.to(out.dtype), weights

    def _logits(self, source: Tensor, target: Tensor, call: AttentionCall) -> Tensor:
        wide = ops.wide_dtype(source.dtype)
        attention = self.att.view(self.heads, self.out_channels).to(wide)
        features, edges, loops = self._edge_features(call, wide), None, None
        if features is not None:
            weight = self.lin_edge.weight.to(wide).t()
            with torch.autocast("cpu", enabled=False):
                edges, loops = (None if one is None else one @ weight for one in features)
        scores: Tensor = _EdgeScores.apply(source, target, edges, attention, call.graph, self.negative_slope)
        if not call.loops:
            return scores
        sums = source[: call.loops].to(wide) + target[: call.loops].to(wide)
        sums = torch.nn.functional.leaky_relu(sums if loops is None else sums + loops, self.negative_slope)
        return call.spread(scores, (sums.view(-1, *attention.shape) * attention).sum(dim=2))

    def _attend(
        self, source: Tensor, logits: Tensor, call: AttentionCall, wants_weights: bool
    ) -> tuple[list[Tensor], Tensor | None]:
        """Returns the weighted sums of each head, [D, C], and the weights, [slots, H]."""
        graph = call.graph
        nothing = logits.new_zeros(1, self.out_channels)
        sums, weights = [], []
        for head, x in enumerate(self._heads(source)):
            options = call.options(head)
            # The softmax and the sums of attention over inputs, of logits that are given.
            out, coefficient, _ = ops.attention(
                x, graph.indptr, graph.indices, nothing,
                edge_logits=logits[:, head : head + 1].contiguous(),
                by_source=graph.by_source_for(source), negative_slope=1.0, **options,
            )  # fmt: skip
            sums.append(out)
            if wants_weights:
                weights.append(ops.attention_weights(coefficient, graph.indptr, **options))
        return sums, torch.cat(weights, dim=1) if wants_weights else None


def _product(rows: Rows, linear: Any, dtype: torch.dtype) -> Tensor:
    return ops.linear([rows], [linear.weight], linear.bias, num_rows=rows.size(0), out_dtype=dtype)
