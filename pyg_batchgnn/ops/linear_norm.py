"""A linear layer and the batch normalisation of its result, in as few passes as possible."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyg_batchgnn.ops.library import fake, first_order, kernels, thread_count
from pyg_batchgnn.ops.linear import check_weights, checked_input, compute_dtype
from pyg_batchgnn.ops.norm import check_column
from pyg_batchgnn.ops.quantized import stored


class LinearNorm(NamedTuple):
    """The result of `linear_norm`."""

    y: Tensor  # [D, O] of the dtype that is computed in
    mean: Tensor  # [O] float64, of the product's columns, without a gradient
    variance: Tensor  # [O] float64, biased, likewise


def linear_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
    *,
    eps: float = 1e-5,
    relu: bool = False,
    after_relu: bool = False,
    out_dtype: torch.dtype | None = None,
) -> LinearNorm:
    """Computes ``batch_norm(x @ weight.t() + bias)`` with the statistics of the product, or its
    ReLU, bitwise identical on any number of threads.

    The gradient of ``bias`` is exactly 0, since a bias only shifts the mean. There are first
    derivatives only.

    Args:
        x: [D, K] float32, float16 (without a gradient) or bfloat16, or float64 if the weight is.
            Rows of a `QuantizedTensor` are decoded in blocks while they are read.
        weight: [O, K] of ``out_dtype`` or float32.
        bias: [O] of the dtype of the weight.
        scale: [O], the weight of the normalisation; None for ones.
        shift: [O], the bias of the normalisation; None for zeros.
        after_relu: x is the result of a ReLU, see `linear`.
        out_dtype: float32, bfloat16 or float64; None for `compute_dtype` of the weight.
    """
    dtype = out_dtype or compute_dtype(weight)
    check_weights([weight], bias, dtype, 1)
    rows, decoding = stored(checked_input(x, None, weight, x.size(0), 1, dtype))
    scale, shift = (check_column(*one, weight.size(0)) for one in (("scale", scale), ("shift", shift)))
    bias = None if bias is None else bias.contiguous()
    layer = (rows, decoding, weight, bias, scale, shift, eps, relu, after_relu, dtype)
    return LinearNorm(*_NormedLinear.apply(*layer))


# In the backward pass the gradient of the product is computed block by block where the gradients of
# weight and rows read it. It is never written.


class _NormedLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        decoding: Tensor | None,
        weight: Tensor,
        bias: Tensor | None,
        scale: Tensor | None,
        shift: Tensor | None,
        eps: float,
        relu: bool,
        after_relu: bool,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor, Tensor]:
        own = weight.contiguous()
        product, mean, variance = _product(x, decoding, own, bias, dtype, after_relu)
        y, mean, variance = kernels.batch_norm(
            product, scale, shift, mean, variance, eps, relu, thread_count()
        )
        ctx.save_for_backward(x, decoding, own, product, scale, shift, mean, variance)
        ctx.bias = None if bias is None else bias.dtype
        ctx.eps, ctx.relu, ctx.after_relu = eps, relu, after_relu
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(mean, variance)
        return y, mean, variance

    @staticmethod
    @first_order
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if grads[0] is None:
            return (None,) * 10
        return *_gradients(ctx, grads[0].contiguous()), *[None] * 4


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, decoding, weight, product, scale, shift, mean, variance = ctx.saved_tensors
    # `GradientColumns` in csrc/kernels/nn/norm.h, and the gradients of scale and shift.
    columns, d_scale, d_shift = kernels.batch_norm_grads(
        grad, product, scale, shift, mean, variance, ctx.eps, ctx.relu, True, True, thread_count()
    )
    need_input = ctx.needs_input_grad[0]
    d_x, d_weight = kernels.linear_grads_normed(
        grad, product, columns, ctx.relu, x, decoding, weight, ctx.after_relu, need_input, thread_count()
    )
    return (
        d_x if need_input else None,
        None,
        d_weight,
        None if ctx.bias is None else torch.zeros(weight.size(0), dtype=ctx.bias),
        None if scale is None else d_scale.to(scale.dtype),
        None if shift is None else d_shift.to(shift.dtype),
    )


def _product(
    x: Tensor,
    decoding: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    dtype: torch.dtype,
    after_relu: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Returns the product and, unless it is rounded, the mean and variance of its columns."""
    if dtype is not torch.bfloat16:
        return kernels.linear_moments(x, decoding, weight, bias, dtype, thread_count())
    product, _ = kernels.linear(
        [x], [None], [decoding], [weight], bias,
        x.size(0), 1, dtype, False, 0.0, 0, None, after_relu, thread_count(),
    )  # fmt: skip
    return product, None, None


# Shapes ###########################################################################################


@fake("linear_moments")
def _fake_moments(
    x: Tensor, _: Tensor | None, weight: Tensor, __: Tensor | None, out_dtype: torch.dtype, ___: int
) -> tuple[Tensor, Tensor, Tensor]:
    column = x.new_empty((weight.size(0),), dtype=torch.float64)
    return x.new_empty((x.size(0), weight.size(0)), dtype=out_dtype), column, torch.empty_like(column)


@fake("linear_grads_normed")
def _fake_grads(*arguments: Any) -> tuple[Tensor, Tensor]:
    _grad, _normed, _columns, _relu, x, _decoding, weight, _after_relu, need_input, _threads = arguments
    rows = x.size(0) if need_input else 0
    return x.new_empty((rows, x.size(1))), weight.new_empty(weight.shape)
