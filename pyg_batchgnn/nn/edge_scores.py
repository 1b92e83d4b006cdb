"""The scores of edges in attention that is not linear (Brody, Alon and Yahav 2022)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.nn.graph import LayerGraph

#: Bytes of the sums of a block of edges, which stay in the cache of a core.
_BLOCK_BYTES = 1 << 20


def edge_scores(
    source: Tensor,
    target: Tensor,
    edge: Tensor | None,
    attention: Tensor,
    graph: LayerGraph,
    negative_slope: float,
) -> Tensor:
    """Returns ``attention[h] . leaky_relu(source[j, h] + target[i, h] + edge[e, h])``, [E, H], for
    the edges e from j to i of a layer.

    Args:
        source: [N, H * C] float32, float64 or bfloat16.
        target: [D, H * C].
        edge: [E, H * C], or None.
        attention: [H, C] float32 or float64, as the result.
        graph: the edges of the layer.
        negative_slope: the slope of the leaky ReLU below 0.
    """
    result: Tensor = _EdgeScores.apply(source, target, edge, attention, graph, negative_slope)
    return result


class _Blocks:
    """The arguments of the leaky ReLU, computed some edges at a time."""

    def __init__(
        self, source: Tensor, target: Tensor, edge: Tensor | None, graph: LayerGraph, dtype: torch.dtype
    ) -> None:
        self._source, self._target, self._edge, self._dtype = source, target, edge, dtype
        self._indices, self._targets = graph.indices, graph.targets
        self._edges = max(1, _BLOCK_BYTES // max(1, source.size(1) * dtype.itemsize))

    def places(self) -> list[slice]:
        edges = self._indices.numel()
        return [slice(at, min(edges, at + self._edges)) for at in range(0, edges, self._edges)]

    def sums(self, place: slice) -> Tensor:
        """Returns the sums of a block, [edges, H * C]."""
        found = self._source.index_select(0, self._indices[place]).to(self._dtype)
        found += self._target.index_select(0, self._targets[place])
        if self._edge is not None:
            found += self._edge[place]
        return found


class _EdgeScores(torch.autograd.Function):
    """Computes the sums of edges again in the backward pass, so that they are never kept."""

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
        blocks = _Blocks(source, target, edge, graph, attention.dtype)
        scores = attention.new_empty(graph.num_edges, attention.size(0))
        for place in blocks.places():
            sums = torch.nn.functional.leaky_relu_(blocks.sums(place), slope)
            by_head = sums.view(-1, *attention.shape)
            torch.sum(by_head.mul_(attention), dim=2, out=scores[place])
        return scores

    @staticmethod
    @ops.first_order
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        source, target, edge, attention = ctx.saved_tensors
        graph, slope = ctx.graph, ctx.slope
        blocks = _Blocks(source, target, edge, graph, attention.dtype)
        grad = grads[0].contiguous()
        of_sums = attention.new_empty(graph.num_edges, source.size(1))
        of_attention = torch.zeros_like(attention)
        for place in blocks.places():
            sums, weight, out = blocks.sums(place), grad[place].unsqueeze(2), of_sums[place]
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
