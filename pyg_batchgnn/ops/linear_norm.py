"""A linear layer and the batch normalisation of its result, in as few passes as possible."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyg_batchgnn.ops.checks import FLOATS, TABLES, check_dense, check_float, wide_dtype
from pyg_batchgnn.ops.library import fake, first_order, kernels, thread_count
from pyg_batchgnn.ops.linear import compute_dtype
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
    ReLU.

    The normalisation is folded into the weight if x requires no gradient and has at most half as
    many columns as the result. The gradient of ``bias`` is exactly zero, because a bias shifts only
    the mean. Bitwise identical on any number of threads. There are first derivatives only.

    Args:
        x: [D, K] float32, float16 (without a gradient) or bfloat16, or float64 if the weight is.
            Rows of a `QuantizedTensor` are decoded in blocks where they are read.
        weight: [O, K] of ``out_dtype`` or float32.
        bias: [O] of the dtype of the weight.
        scale: [O], the weight of the normalisation; ones where None.
        shift: [O], the bias of the normalisation; zeros where None.
        after_relu: x is the result of a ReLU, see `linear`.
        out_dtype: float32, bfloat16 or float64; `compute_dtype` of the weight where None.
    """
    dtype = out_dtype or compute_dtype(weight)
    _check(x, weight, dtype)
    for name, column in (("bias", bias), ("scale", scale), ("shift", shift)):
        if column is not None:
            check_float(name, column)
            if column.shape != weight.shape[:1]:
                raise ValueError(f"{name} must be [{weight.size(0)}], got {list(column.shape)}")
    if bias is not None and bias.dtype is not weight.dtype:
        raise TypeError(f"bias must have the weight's type, {weight.dtype}, got {bias.dtype}")
    bias, scale, shift = (None if one is None else one.contiguous() for one in (bias, scale, shift))
    rows, decoding = stored(x if x.stride(1) == 1 else x.contiguous())
    layer = (rows, decoding, weight, bias, scale, shift, eps, relu)
    if not x.requires_grad and 2 * weight.size(1) <= weight.size(0):
        return LinearNorm(*_FoldedNorm.apply(*layer, dtype))
    return LinearNorm(*_NormedLinear.apply(*layer, after_relu, dtype))


def _check(x: Tensor, weight: Tensor, dtype: torch.dtype) -> None:
    if dtype not in FLOATS:
        raise TypeError(f"out_dtype must be float32, bfloat16 or float64, got {dtype}")
    check_dense("x", x)
    check_dense("weight", weight)
    if weight.dim() != 2 or x.dim() != 2 or x.size(1) != weight.size(1):
        raise ValueError(f"x must be [D, K] and weight [O, K], got {list(x.shape)} and {list(weight.shape)}")
    narrower = dtype is torch.float64 and weight.dtype is not torch.float64
    if weight.dtype not in (dtype, torch.float32) or narrower:
        raise TypeError(f"a weight of {weight.dtype} cannot be multiplied in {dtype}; convert it")
    if x.dtype not in TABLES or (x.dtype is torch.float64) > (dtype is torch.float64):
        raise TypeError(f"x of {x.dtype} cannot be multiplied in {dtype}; convert it")
    if x.requires_grad and x.dtype is torch.float16:
        raise TypeError("x of float16 takes no gradient; use bfloat16 or float32")


# Product, then normalisation ######################################################################

# In the backward pass the gradient of the product is computed block by block where the gradients of
# weight and rows read it. It is never written.


class _NormedLinear(torch.autograd.Function):
    """Of rows with a gradient or with many columns."""

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
    columns, d_scale, d_shift = kernels.batch_norm_grad_columns(
        grad, product, scale, shift, mean, variance, ctx.eps, ctx.relu, thread_count()
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
    """Returns the product with the mean and the variance of its columns; without them if the
    product is rounded."""
    if dtype is not torch.bfloat16:
        return kernels.linear_moments(x, decoding, weight, bias, dtype, thread_count())
    product, _ = kernels.linear(
        [x], [None], [decoding], [weight], bias,
        x.size(0), 1, dtype, False, 0.0, 0, None, after_relu, thread_count(),
    )  # fmt: skip
    return product, None, None


# Normalisation folded into the weight #############################################################

# The statistics of the result follow from the mean and covariance of the columns of the rows. So
# the product before the normalisation is never written, neither here nor for the gradients. The
# covariance costs K / 2 multiplications per element of the [D, K] rows.


class _FoldedNorm(torch.autograd.Function):
    """Of rows without a gradient."""

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
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor, Tensor]:
        own = weight.contiguous()
        # The folded weight and bias, the mean (without the bias) and variance of the product, the
        # mean of the columns of x, and the weight times their covariance.
        folded, constant, mean, variance, center, spread = kernels.fold_norm(
            x, decoding, own, scale, shift, eps, dtype, thread_count()
        )
        y, mask = kernels.linear(
            [x], [None], [decoding], [folded], constant,
            x.size(0), 1, dtype, relu, 0.0, 0, None, False, thread_count(),
        )  # fmt: skip
        ctx.save_for_backward(x, decoding, own, scale, mask, variance, center, spread)
        ctx.eps = eps
        ctx.bias = None if bias is None else bias.dtype
        ctx.shift = None if shift is None else shift.dtype
        mean = mean if bias is None else mean + bias.double()
        ctx.mark_non_differentiable(mean, variance)
        ctx.set_materialize_grads(False)
        return y, mean, variance

    @staticmethod
    @first_order
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        grad = grads[0]
        if grad is None:
            return (None,) * 9
        x, decoding, weight, scale, mask, variance, center, spread = ctx.saved_tensors
        _, (d_folded,), d_shift = kernels.linear_grads(
            grad.contiguous(), mask, 1.0, [x], [None], [decoding], [weight], center,
            1, False, [False], True, True, thread_count(),
        )  # fmt: skip
        d_weight, d_scale = kernels.fold_norm_grads(d_folded, weight, scale, variance, spread, ctx.eps)
        return (
            None,
            None,
            d_weight,
            None if ctx.bias is None else torch.zeros(weight.size(0), dtype=ctx.bias),
            None if scale is None else d_scale.to(scale.dtype),
            None if ctx.shift is None else d_shift.to(ctx.shift),
            *[None] * 3,
        )


# Shapes ###########################################################################################


@fake("linear_moments")
def _fake_moments(
    x: Tensor, _: Tensor | None, weight: Tensor, __: Tensor | None, out_dtype: torch.dtype, ___: int
) -> tuple[Tensor, Tensor, Tensor]:
    column = x.new_empty((weight.size(0),), dtype=torch.float64)
    return x.new_empty((x.size(0), weight.size(0)), dtype=out_dtype), column, torch.empty_like(column)


@fake("batch_norm_grad_columns")
def _fake_columns(grad: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    count = grad.size(1)
    column = grad.new_empty((count,), dtype=torch.float64)
    return grad.new_empty((5, count), dtype=wide_dtype(grad.dtype)), column, torch.empty_like(column)


@fake("linear_grads_normed")
def _fake_grads(*arguments: Any) -> tuple[Tensor, Tensor]:
    _grad, _normed, _columns, _relu, x, _decoding, weight, _after_relu, need_input, _threads = arguments
    rows = x.size(0) if need_input else 0
    return x.new_empty((rows, x.size(1))), weight.new_empty(weight.shape)


@fake("fold_norm")
def _fake_fold(x: Tensor, _decoding: Tensor | None, weight: Tensor, *_: Any) -> tuple[Tensor, ...]:
    outputs, columns = weight.shape

    def wide(*shape: int) -> Tensor:
        return x.new_empty(shape, dtype=torch.float64)

    folded, constant = torch.empty_like(weight), weight.new_empty((outputs,))
    return folded, constant, wide(outputs), wide(outputs), wide(columns), wide(outputs, columns)


@fake("fold_norm_grads")
def _fake_folded_grads(_: Tensor, weight: Tensor, *__: Any) -> tuple[Tensor, Tensor]:
    return weight.new_empty(weight.shape), weight.new_empty((weight.size(0),), dtype=torch.float64)
