"""Gradients of `aggregate`: aggregation again, along the edges by source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn.ops import aggregate_fake as aggregate_fake  # registers
from pyg_batchgnn.ops.aggregate import aggregate, degree_scale, launch, transpose
from pyg_batchgnn.ops.library import kernels


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
    """The gradient of x: [N, F], every row written once. What scaled targets scales sources, and the other
    way round; ``self_input`` is what arrives at rows below its number by other ways."""
    ptr, targets, place = by_source
    if mean:
        degree = degree_scale(indptr, indptr.numel() - 1, loops=0, root=False, dtype=_wide(grad.dtype))
        target_scale = degree if target_scale is None else degree * target_scale
    weight_at = None if edge_weight is None else place if edge is None else edge.index_select(0, place)
    # A target that is no source as well (in a graph of two kinds of nodes) has no row to take its own part.
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


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    saved = ctx.saved_tensors  # once: torch.utils.checkpoint hands them out no second time
    indptr, indices, row, edge_weight, edge, source_scale, target_scale, self_scale, x, out = saved[:10]
    by_source = saved[10:]
    no_lists = [None] * len(by_source)
    grad = grad.contiguous()
    grad_x = grad_edge = grad_self = None
    if ctx.needs_input_grad[0]:
        by_source = by_source or transpose(indptr, indices, ctx.sources, ctx.threads)
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


torch.library.register_autograd("pyg_batchgnn::aggregate", _backward, setup_context=_setup)


class _AggregateBeside(torch.autograd.Function):
    """`aggregate` and the targets' own rows, whose two gradients are added while the rows are written."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        indptr: Tensor,
        indices: Tensor,
        by_source: Sequence[Tensor],
        reduce: str,
        out_dtype: torch.dtype,
        threads: int,
    ) -> tuple[Tensor, Tensor]:
        ctx.x_dtype, ctx.reduce, ctx.threads = x.dtype, reduce, threads
        ctx.save_for_backward(indptr, *by_source)
        ctx.set_materialize_grads(False)
        targets = indptr.numel() - 1
        out = aggregate(x, indptr, indices, reduce=reduce, out_dtype=out_dtype, threads=threads)
        return out, x[:targets]

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_own: Tensor | None) -> tuple[Tensor | None, ...]:
        indptr, *by_source = ctx.saved_tensors
        if grad is None:
            if grad_own is None:
                return (None,) * 7
            grad = torch.zeros_like(grad_own)
        own = None if grad_own is None else grad_own.to(grad.dtype).contiguous()
        result = source_gradient(
            grad.contiguous(),
            indptr,
            by_source,
            ctx.x_dtype,
            self_input=own,
            mean=ctx.reduce == "mean",
            threads=ctx.threads,
        )
        return (result, *[None] * 6)


def aggregate_beside(
    x: Tensor,
    indptr: Tensor,
    indices: Tensor,
    *,
    by_source: Sequence[Tensor] = (),
    reduce: str = "sum",
    out_dtype: torch.dtype | None = None,
    threads: int | None = None,
) -> tuple[Tensor, Tensor]:
    """`aggregate` of the in-edges, and the targets' own rows ``x[:D]`` beside it, as layers with a root
    weight read them.

    The same as calling `aggregate` and slicing ``x``, but the two gradients of ``x`` are added in the pass
    that writes them; a sliced tensor's gradient would be padded with zeros and added in passes of its own.
    The arguments are those of `aggregate`; ``reduce`` is "sum" or "mean".

    Returns:
        [D, F] of ``out_dtype``, and [D, F] of the dtype of ``x``, which shares its memory.
    """
    targets = indptr.numel() - 1
    dtype = out_dtype or x.dtype
    threads = threads or torch.get_num_threads()
    if reduce == "max" or not (torch.is_grad_enabled() and x.requires_grad):
        out = aggregate(
            x, indptr, indices, by_source=by_source, reduce=reduce, out_dtype=dtype, threads=threads
        )
        return out, x[:targets]
    by_source = by_source or transpose(indptr, indices, x.size(0), threads)
    return _AggregateBeside.apply(x, indptr, indices, tuple(by_source), reduce, dtype, threads)
