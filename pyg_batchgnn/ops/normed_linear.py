"""The product and its normalisation one after the other: `linear_norm` of rows that learn.

Of the backward pass, what the normalisation gives back is made block by block where the product's gradients
read it, and never written.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn.ops.library import kernels


class NormedLinear(torch.autograd.Function):
    """`linear_norm` of rows that take a gradient, or of many columns."""

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
        gated: bool,
        dtype: torch.dtype,
        threads: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        own = weight.contiguous()
        product, *statistics = _product(x, own, bias, dtype, gated, threads)
        y, mean, variance = kernels.batch_norm(product, scale, shift, *statistics, eps, relu, threads)
        ctx.save_for_backward(x, own, product, scale, shift, mean, variance)
        ctx.eps, ctx.relu, ctx.gated, ctx.threads = eps, relu, gated, threads
        ctx.bias = bias is not None
        ctx.mark_non_differentiable(mean, variance)
        ctx.set_materialize_grads(False)
        return y, mean, variance

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if grads[0] is None:
            return (None,) * 10
        grad = grads[0].contiguous()
        x, weight, product, scale, shift, mean, variance = ctx.saved_tensors
        columns, d_scale, d_shift = kernels.batch_norm_grad_columns(
            grad, product, scale, shift, mean, variance, ctx.eps, ctx.relu, ctx.threads
        )
        need_input = ctx.needs_input_grad[0]
        d_x, d_weight, d_bias = kernels.linear_grads_normed(
            grad, product, columns, ctx.relu, x, weight, ctx.gated, need_input, ctx.bias, ctx.threads
        )
        return (
            d_x if need_input else None,
            d_weight,
            d_bias if ctx.bias else None,
            None if scale is None else d_scale.to(scale.dtype),
            None if shift is None else d_shift.to(shift.dtype),
            *[None] * 5,
        )


def _product(
    x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, gated: bool, threads: int
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The product with its columns' mean and variance, which are left to be taken where it is rounded."""
    if dtype is not torch.bfloat16:
        product, mean, variance = kernels.linear_moments(x, weight, bias, dtype, threads)
        return product, mean, variance
    product, _ = kernels.linear(
        [x], [None], [weight], bias, x.size(0), 1, dtype, False, 0.0, 0, None, gated, threads
    )
    return product, None, None


# Shapes ###########################################################################################


def _fake_moments(
    x: Tensor, weight: Tensor, _: Tensor | None, out_dtype: torch.dtype, __: int
) -> tuple[Tensor, Tensor, Tensor]:
    column = x.new_empty((weight.size(0),), dtype=torch.float64)
    return x.new_empty((x.size(0), weight.size(0)), dtype=out_dtype), column, torch.empty_like(column)


def _fake_columns(grad: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    count = grad.size(1)
    wide = torch.float64 if grad.dtype == torch.float64 else torch.float32
    column = grad.new_empty((count,), dtype=torch.float64)
    return grad.new_empty((5, count), dtype=wide), column, torch.empty_like(column)


def _fake_grads(
    _grad: Tensor,
    _normed: Tensor,
    _columns: Tensor,
    _relu: bool,
    x: Tensor,
    weight: Tensor,
    _gated: bool,
    need_input: bool,
    need_bias: bool,
    _threads: int,
) -> tuple[Tensor, Tensor, Tensor]:
    rows, biases = x.size(0) if need_input else 0, weight.size(0) if need_bias else 0
    return x.new_empty((rows, x.size(1))), weight.new_empty(weight.shape), weight.new_empty((biases,))


torch.library.register_fake("pyg_batchgnn::linear_moments", _fake_moments)
torch.library.register_fake("pyg_batchgnn::batch_norm_grad_columns", _fake_columns)
torch.library.register_fake("pyg_batchgnn::linear_grads_normed", _fake_grads)
