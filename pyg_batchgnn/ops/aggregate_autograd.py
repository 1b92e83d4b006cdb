"""The shapes of aggregation's results, and the gradients of `aggregate`.

The gradient of the rows is an aggregation again, along the edges sorted by source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn.ops.aggregate import launch
from pyg_batchgnn.ops.checks import id_dtype
from pyg_batchgnn.ops.library import fake, gradient, kernels


def source_gradient(
    grad: Tensor,
    indptr: Tensor,
    by_source: Sequence[Tensor],
    out_dtype: torch.dtype,
    *,
    edge_weight: Tensor | None = None,
    edge: Tensor | None = None,
    source_scale: Tensor | None = None,
    target_scale: Tensor | None = None,
    self_input: Tensor | None = None,
    self_scale: Tensor | None = None,
    mean: bool = False,
    threads: int,
) -> Tensor:
    """Returns the gradient of x, [N, F]; every row is written once.

    The factors of sources and targets change roles. ``self_input`` is added to the rows below its
    number of rows: the gradient that arrives there in other ways.
    """
    ptr, targets, place = by_source
    if mean:
        degree = kernels.degree_scale(indptr, indptr.numel() - 1, 0, False, _wide(grad.dtype))
        target_scale = degree if target_scale is None else degree * target_scale
    weight_at = None if edge_weight is None else place if edge is None else edge.index_select(0, place)
    # In a graph of two node types a target that is not a source has no row for its own part.
    result = launch(
        grad,
        ptr,
        targets,
        edge_weight=edge_weight,
        edge=weight_at,
        source_scale=target_scale,
        target_scale=source_scale,
        self_input=self_input,
        self_scale=self_scale,
        out_dtype=torch.float32 if out_dtype == torch.float16 else _result(grad.dtype, out_dtype),
        threads=threads,
    )
    return result if result.dtype == out_dtype else result.to(out_dtype)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _result(grad: torch.dtype, wanted: torch.dtype) -> torch.dtype:
    return torch.float64 if grad == torch.float64 else wanted


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, indptr, indices, row, edge_weight, edge, source_scale, target_scale, _, self_scale = inputs[:10]
    by_source, _, ctx.reduce, _, ctx.threads = inputs[10:]
    ctx.x_dtype, ctx.sources = x.dtype, x.size(0)
    weights = edge_weight is not None and edge_weight.requires_grad
    selves = self_scale is not None and self_scale.requires_grad
    ctx.need_weights = (weights, selves)
    kept_x = x if weights or selves or ctx.reduce == "max" else None
    kept_out = output if ctx.reduce == "max" else None
    ctx.save_for_backward(
        indptr, indices, row, edge_weight, edge, source_scale, target_scale, self_scale, kept_x, kept_out,
        *by_source,
    )  # fmt: skip


@gradient("aggregate", _setup)
def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    saved = ctx.saved_tensors  # once: torch.utils.checkpoint returns them only once
    indptr, indices, row, edge_weight, edge, source_scale, target_scale, self_scale, x, out = saved[:10]
    by_source = saved[10:]
    no_lists = [None] * len(by_source)
    grad = grad.contiguous()
    grad_x = grad_edge = grad_self = None
    if ctx.needs_input_grad[0]:
        by_source = by_source or kernels.transpose(
            indptr, indices, indptr.numel() - 1, ctx.sources, ctx.threads
        )
        if ctx.reduce == "max":
            grad_x = kernels.aggregate_max_grads(
                grad, out, x, indptr, indices, by_source[0], by_source[1], ctx.threads
            )
        else:
            grad_x = source_gradient(
                grad,
                indptr,
                by_source,
                ctx.x_dtype,
                edge_weight=edge_weight,
                edge=edge,
                source_scale=source_scale,
                target_scale=target_scale,
                self_scale=self_scale,
                mean=ctx.reduce == "mean",
                threads=ctx.threads,
            )
    if any(ctx.need_weights):
        need_edge, need_self = ctx.need_weights
        grad_edge, grad_self = kernels.aggregate_weight_grads(
            grad, x, indptr, indices, row, source_scale, target_scale, ctx.reduce == "mean", need_edge,
            self_scale.numel() if need_self else 0, ctx.threads,
        )  # fmt: skip
        if need_edge and edge is not None:
            grad_edge = torch.zeros_like(edge_weight).index_add_(0, edge, grad_edge)
        grad_edge = grad_edge if need_edge else None
        grad_self = grad_self.view_as(self_scale) if need_self else None
    return (grad_x, None, None, None, grad_edge, None, None, None, None, grad_self, no_lists, *[None] * 4)


@fake("aggregate")
def _fake_aggregate(x: Tensor, *rest: Any) -> Tensor:
    num_targets, _reduce, out_dtype, _threads = rest[-4:]
    return x.new_empty((num_targets, x.size(1)), dtype=out_dtype)


@fake("aggregate_weight_grads")
def _fake_weight_grads(grad: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    indices: Tensor = rest[2]
    need_edge, self_size, _threads = rest[-3:]
    dtype = torch.float64 if grad.dtype == torch.float64 else torch.float32
    edges = indices.numel() if need_edge else 0
    return grad.new_empty((edges,), dtype=dtype), grad.new_empty((self_size,), dtype=dtype)


@fake("aggregate_max_grads")
def _fake_max_grads(_grad: Tensor, _out: Tensor, x: Tensor, *_rest: Any) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@fake("transpose")
def _fake_transpose(
    indptr: Tensor, indices: Tensor, _num_targets: int, num_sources: int, _threads: int
) -> tuple[Tensor, Tensor, Tensor]:
    edges = indices.numel()
    return (
        indptr.new_empty((num_sources + 1,)),
        indices.new_empty((edges,), dtype=torch.int32),
        indices.new_empty((edges,), dtype=id_dtype(edges)),
    )


@fake("degree_scale")
def _fake_degree_scale(
    indptr: Tensor, num_nodes: int, _loops: int, _root: bool, dtype: torch.dtype
) -> Tensor:
    return indptr.new_empty((num_nodes,), dtype=dtype)
