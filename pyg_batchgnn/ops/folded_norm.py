"""The product whose normalisation is folded into its weight: `linear_norm` of rows without a gradient.

The result's statistics follow from the mean and covariance of the rows' columns, so what lies between product
and normalised result is never written, neither here nor by the gradients. The covariance costs K / 2
multiplications an element of [D, K] rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn.ops.library import kernels


class FoldedNorm(torch.autograd.Function):
    """`linear_norm` of rows that take no gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        scale: Tensor | None,
        shift: Tensor | None,
        eps: float,
        relu: bool,
        dtype: torch.dtype,
        threads: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        own = weight.contiguous()
        folded, constant, mean, variance, center, spread = kernels.fold_norm(
            x, own, scale, shift, eps, dtype, threads
        )
        y, mask = kernels.linear(
            [x], [None], [folded], constant, x.size(0), 1, dtype, relu, 0.0, 0, None, False, threads
        )
        ctx.save_for_backward(x, own, scale, mask, variance, center, spread)
        ctx.eps, ctx.threads = eps, threads
        ctx.bias = None if bias is None else bias.dtype
        ctx.shift = None if shift is None else shift.dtype
        if bias is not None:
            mean = mean + bias.double()
        ctx.mark_non_differentiable(mean, variance)
        ctx.set_materialize_grads(False)
        return y, mean, variance

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        grad = grads[0]
        if grad is None:
            return (None,) * 9
        x, weight, scale, mask, variance, center, spread = ctx.saved_tensors
        _, (d_folded,), d_shift = kernels.linear_grads(
            grad.contiguous(),
            mask,
            1.0,
            [x],
            [None],
            [weight],
            center,
            1,
            False,
            [False],
            True,
            True,
            ctx.threads,
        )
        d_weight, d_scale = kernels.fold_norm_grads(d_folded, weight, scale, variance, spread, ctx.eps)
        return (
            None,
            d_weight,
            None if ctx.bias is None else torch.zeros(weight.size(0), dtype=ctx.bias),
            None if scale is None else d_scale.to(scale.dtype),
            None if ctx.shift is None else d_shift.to(ctx.shift),
            *[None] * 4,
        )


# Shapes ###########################################################################################


def _fake_fold(x: Tensor, weight: Tensor, *_: Any) -> tuple[Tensor, ...]:
    outputs, columns = weight.shape

    def wide(*shape: int) -> Tensor:
        return x.new_empty(shape, dtype=torch.float64)

    constant = weight.new_empty((outputs,))
    return (
        torch.empty_like(weight),
        constant,
        wide(outputs),
        wide(outputs),
        wide(columns),
        wide(outputs, columns),
    )


def _fake_grads(_: Tensor, weight: Tensor, *__: Any) -> tuple[Tensor, Tensor]:
    return weight.new_empty(weight.shape), weight.new_empty((weight.size(0),), dtype=torch.float64)


torch.library.register_fake("pyg_batchgnn::fold_norm", _fake_fold)
torch.library.register_fake("pyg_batchgnn::fold_norm_grads", _fake_grads)
