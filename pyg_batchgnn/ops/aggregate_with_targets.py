"""Aggregation of in-edges together with the first rows of what is aggregated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyg_batchgnn.ops.aggregate import aggregate
from pyg_batchgnn.ops.aggregate_autograd import source_gradient
from pyg_batchgnn.ops.by_source import check_by_source, transpose
from pyg_batchgnn.ops.first_order import first_order
from pyg_batchgnn.ops.first_rows import padded


class WithTargets(NamedTuple):
    """The result of `aggregate_with_targets`.

    Attributes:
        out: [D, F], the reduced in-edges.
        targets: [T, F] of the dtype of ``x``, its first rows. They share the memory of ``x``.
    """

    out: Tensor
    targets: Tensor


class _AggregateWithTargets(torch.autograd.Function):
    """`aggregate` and the first rows.

    Their two gradients are added while the rows are written.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        indptr: Tensor,
        indices: Tensor,
        by_source: Sequence[Tensor],
        reduce: str,
        out_dtype: torch.dtype,
        targets: int,
        threads: int,
    ) -> tuple[Tensor, Tensor]:
        ctx.rows, ctx.x_dtype, ctx.reduce, ctx.threads = x.size(0), x.dtype, reduce, threads
        ctx.save_for_backward(indptr, *by_source)
        ctx.set_materialize_grads(False)
        out = aggregate(x, indptr, indices, reduce=reduce, out_dtype=out_dtype, threads=threads)
        return out, x[:targets]

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor | None, grad_own: Tensor | None) -> tuple[Tensor | None, ...]:
        indptr, *by_source = ctx.saved_tensors
        if grad is None or by_source[1].numel() == 0:
            if grad is not None and grad_own is None:
                grad_own = grad.new_zeros(0, grad.size(1))
            return (None if grad_own is None else padded(grad_own, ctx.rows), *[None] * 7)
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
        return (result, *[None] * 7)


def aggregate_with_targets(
    x: Tensor,
    indptr: Tensor,
    indices: Tensor,
    *,
    by_source: Sequence[Tensor] = (),
    reduce: str = "sum",
    out_dtype: torch.dtype | None = None,
    targets: int | None = None,
    threads: int | None = None,
) -> WithTargets:
    """Computes `aggregate` of the in-edges and returns the first rows ``x[:T]`` with it.

    The results are those of `aggregate` and of slicing ``x``. The two gradients of ``x`` are added
    in the pass that writes them. The gradient of a slice would be padded with zeros and added in
    two more passes. The other arguments are those of `aggregate`.

    Args:
        targets: T, the number of rows; that of the targets where None. With all rows of ``x`` the
            next relation reads them, and the gradients of both are added in one pass.
    """
    targets = indptr.numel() - 1 if targets is None else targets
    dtype = out_dtype or x.dtype
    if targets > x.size(0):
        raise ValueError(f"x has {x.size(0)} rows, but there are {targets} targets")
    threads = threads or torch.get_num_threads()
    if reduce == "max" or not (torch.is_grad_enabled() and x.requires_grad):
        out = aggregate(
            x, indptr, indices, by_source=by_source, reduce=reduce, out_dtype=dtype, threads=threads
        )
        return WithTargets(out, x if targets == x.size(0) else x[:targets])
    by_source = by_source or transpose(indptr, indices, x.size(0), threads)
    check_by_source(by_source, x.size(0), indptr, indices)
    return WithTargets(
        *_AggregateWithTargets.apply(x, indptr, indices, tuple(by_source), reduce, dtype, targets, threads)
    )
