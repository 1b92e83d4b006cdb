"""Sums over in-edges of rows that are normalised when they are read (docs/decisions/0022)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn.ops.aggregate import check_by_source, check_graph, source_gradient, transposed
from pyg_batchgnn.ops.checks import check_dense
from pyg_batchgnn.ops.library import fake, first_order, kernels
from pyg_batchgnn.ops.normed_linear import GradientSums


def aggregate_normed(
    product: Tensor,
    columns: Tensor,
    indptr: Tensor,
    indices: Tensor,
    *,
    self_scale: Tensor,
    by_source: Sequence[Tensor] = (),
    sums: GradientSums | None = None,
    out_dtype: torch.dtype | None = None,
    threads: int | None = None,
) -> Tensor:
    """Aggregates ``y = relu((product - columns[0]) * columns[1] + columns[2])`` without writing y.

        out[i] = sum of y[s] over the in-edges of target i + self_scale[i] * y[i]

    The bits are those of `aggregate` of the result of `batch_norm`. ``product`` stands in for y in
    autograd: it receives the gradient of y, as `linear_norm_on_read` expects.

    Args:
        product: [>= N, F] float32, [N, F] if it takes a gradient; copied if it is not contiguous.
        columns: [3, F] float32, center, scale and shift; without a gradient.
        indptr: [D + 1] int64, from 0 to E.
        indices: [E] int32 or int64 in [0, N).
        self_scale: [D], or [1] for all; constant.
        sums: from `linear_norm_on_read`; receives the sums of the gradient, which are taken while
            it is written.

    Returns:
        [D, F].
    """
    dtype = out_dtype or torch.float32
    check_graph(product, indptr, indices, None, "sum", dtype)
    if product.dtype is not torch.float32 or dtype is torch.float64:
        raise TypeError(
            f"rows are normalised when they are read in float32 only, not from {product.dtype} to {dtype}; "
            f"use batch_norm and aggregate"
        )
    if columns.shape != (3, product.size(1)) or columns.dtype is not torch.float32:
        raise ValueError(
            f"columns must be [3, {product.size(1)}] float32, got {list(columns.shape)} {columns.dtype}"
        )
    targets, count = indptr.numel() - 1, threads or torch.get_num_threads()
    check_dense("columns", columns)
    check_dense("self_scale", self_scale)
    if self_scale.requires_grad:
        raise ValueError(
            "self_scale gets no gradient from rows that are never written; use batch_norm and aggregate"
        )
    if self_scale.dim() != 1 or self_scale.numel() not in (1, targets):
        raise ValueError(f"self_scale must have {targets} entries, or one, got {list(self_scale.shape)}")
    rows = product.contiguous()
    if by_source:
        check_by_source(by_source, product.size(0), indptr, indices)
    elif torch.is_grad_enabled() and product.requires_grad:
        by_source = transposed(indptr, indices, product.size(0), count)
    scale = self_scale.to(torch.float32).contiguous()
    out: Tensor = _AggregateNormed.apply(
        rows, columns.contiguous(), indptr, indices, scale, tuple(by_source), sums, dtype, count
    )
    return out


class _AggregateNormed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        product: Tensor,
        columns: Tensor,
        indptr: Tensor,
        indices: Tensor,
        self_scale: Tensor,
        by_source: Sequence[Tensor],
        sums: GradientSums | None,
        dtype: torch.dtype,
        threads: int,
    ) -> Tensor:
        ctx.sums, ctx.threads = sums, threads
        ctx.save_for_backward(product, columns, indptr, self_scale, *by_source)
        return kernels.aggregate_normed(
            product, columns, indptr, indices, self_scale, indptr.numel() - 1, dtype, threads
        )

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        product, columns, indptr, self_scale, *by_source = ctx.saved_tensors
        nothing = [None] * 8
        grad, threads = grad.contiguous(), ctx.threads
        if ctx.sums is None or grad.dtype is not torch.float32:
            of_values = source_gradient(
                grad, indptr, by_source, torch.float32, self_scale=self_scale, threads=threads
            )
            return of_values, *nothing
        of_values, sums = kernels.aggregate_normed_grads(
            grad, by_source[0], by_source[1], self_scale, product, columns, threads
        )
        ctx.sums.leave(of_values, sums)
        return of_values, *nothing


@fake("aggregate_normed")
def _fake(product: Tensor, *rest: Any) -> Tensor:
    num_targets, out_dtype, _threads = rest[-3:]
    return product.new_empty((num_targets, product.size(1)), dtype=out_dtype)


@fake("aggregate_normed_grads")
def _fake_grads(
    _grad: Tensor, _ptr: Tensor, _targets: Tensor, _scale: Tensor, x: Tensor, *_: Any
) -> tuple[Tensor, Tensor]:
    contiguous = torch.contiguous_format
    sums = x.new_empty((2, x.size(1)), dtype=torch.float64)
    return torch.empty_like(x, memory_format=contiguous), sums
