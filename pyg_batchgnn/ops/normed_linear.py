"""A product and then its normalisation: `linear_norm` of rows with a gradient.

In the backward pass the gradient of the product is computed block by block where the gradients of
weight and rows read it. It is never written.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyg_batchgnn.ops.first_order import first_order
from pyg_batchgnn.ops.folded_norm import Hidden
from pyg_batchgnn.ops.gradient_sums import GradientSums
from pyg_batchgnn.ops.library import fake, kernels
from pyg_batchgnn.ops.norm import BatchNormResult


class Product(NamedTuple):
    """A product and, unless it is rounded, the statistics of its columns.

    Attributes:
        y: [D, O].
        mean: [O] float64; None where it is taken later.
        variance: [O] float64, biased; None where it is taken later.
    """

    y: Tensor
    mean: Tensor | None
    variance: Tensor | None


class LinearMoments(NamedTuple):
    """A product with the statistics of its columns, taken in the same pass.

    Attributes:
        y: [D, O].
        mean: [O] float64.
        variance: [O] float64, biased.
    """

    y: Tensor
    mean: Tensor
    variance: Tensor


class GradColumns(NamedTuple):
    """The columns that the gradient of a normalisation is computed from.

    Attributes:
        columns: [5, O] float32, or float64 if the rows are; see `GradientColumns` in
            csrc/kernels/nn/norm.h.
        weight: [O] float64, the gradient of the normalisation's weight.
        bias: [O] float64, that of its bias.
    """

    columns: Tensor
    weight: Tensor
    bias: Tensor


class GradsBefore(NamedTuple):
    """The gradients of a product's weight and of the layer before it.

    Attributes:
        weight: [O, H], of the product's weight.
        folded: [H, K], of the folded weight of the layer before.
        shift: [H], of that layer's shift.
    """

    weight: Tensor
    folded: Tensor
    shift: Tensor


class NormedLinear(torch.autograd.Function):
    """`linear_norm` of rows with a gradient or with many columns.

    With ``sums`` the product is returned and its reader computes the normalised values. The
    gradient that arrives here is that of the values all the same. The reader may store its column
    sums in ``sums``.
    """

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
        after_relu: bool,
        dtype: torch.dtype,
        threads: int,
        hidden: Hidden | None = None,
        sums: GradientSums | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        own = weight.contiguous()
        if sums is None:
            found = _product(x, own, bias, dtype, after_relu, threads)
            product = found.y
            y, mean, variance = BatchNormResult(
                *kernels.batch_norm(product, scale, shift, found.mean, found.variance, eps, relu, threads)
            )
        else:
            y, mean, variance = LinearMoments(*kernels.linear_moments(x, own, bias, dtype, threads))
            product = y
        before = () if hidden is None else (hidden.x, hidden.center)
        ctx.save_for_backward(x, own, product, scale, shift, mean, variance, *before)
        ctx.hidden = None if hidden is None else hidden.gradient
        ctx.bias = None if bias is None else bias.dtype
        ctx.eps, ctx.relu, ctx.after_relu, ctx.threads, ctx.sums = eps, relu, after_relu, threads, sums
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(mean, variance)
        return y, mean, variance

    @staticmethod
    @first_order
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if grads[0] is None:
            return (None,) * 12
        return *_gradients(ctx, grads[0].contiguous()), *[None] * 7


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """Returns the gradients of x, weight, bias, scale and shift."""
    sums = None if ctx.sums is None else ctx.sums.take(grad)
    x, weight, product, scale, shift, mean, variance, *before = ctx.saved_tensors
    norm = GradColumns(
        *kernels.batch_norm_grad_columns(
            grad, product, scale, shift, mean, variance, sums, ctx.eps, ctx.relu, ctx.threads
        )
    )
    need_input = ctx.needs_input_grad[0]
    if before and need_input:
        found = GradsBefore(
            *kernels.linear_grads_before(
                grad, product, norm.columns, ctx.relu, x, weight, *before, ctx.threads
            )
        )
        d_weight = found.weight
        d_x = ctx.hidden.leave(x, found.folded, found.shift)
    else:
        d_x, d_weight = kernels.linear_grads_normed(
            grad, product, norm.columns, ctx.relu, x, weight, ctx.after_relu, need_input, ctx.threads
        )
    return (
        d_x if need_input else None,
        d_weight,
        None if ctx.bias is None else torch.zeros(weight.size(0), dtype=ctx.bias),
        None if scale is None else norm.weight.to(scale.dtype),
        None if shift is None else norm.bias.to(shift.dtype),
    )


def _product(
    x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, after_relu: bool, threads: int
) -> Product:
    """Returns the product with the statistics of its columns; without them if the product is
    rounded."""
    if dtype is not torch.bfloat16:
        return Product(*kernels.linear_moments(x, weight, bias, dtype, threads))
    product, _ = kernels.linear(
        [x], [None], [weight], bias, x.size(0), 1, dtype, False, 0.0, 0, None, after_relu, threads
    )
    return Product(product, None, None)


# Shapes ###########################################################################################


@fake("linear_moments")
def _fake_moments(
    x: Tensor, weight: Tensor, _: Tensor | None, out_dtype: torch.dtype, __: int
) -> tuple[Tensor, Tensor, Tensor]:
    column = x.new_empty((weight.size(0),), dtype=torch.float64)
    return x.new_empty((x.size(0), weight.size(0)), dtype=out_dtype), column, torch.empty_like(column)


@fake("batch_norm_grad_columns")
def _fake_columns(grad: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    count = grad.size(1)
    wide = torch.float64 if grad.dtype == torch.float64 else torch.float32
    column = grad.new_empty((count,), dtype=torch.float64)
    return grad.new_empty((5, count), dtype=wide), column, torch.empty_like(column)


@fake("batch_norm_columns")
def _fake_affine(
    _weight: Tensor | None, _bias: Tensor | None, mean: Tensor, _variance: Tensor, _eps: float
) -> Tensor:
    return mean.new_empty((3, mean.size(0)), dtype=torch.float32)


@fake("linear_grads_normed")
def _fake_grads(
    _grad: Tensor,
    _normed: Tensor,
    _columns: Tensor,
    _relu: bool,
    x: Tensor,
    weight: Tensor,
    _after_relu: bool,
    need_input: bool,
    _threads: int,
) -> tuple[Tensor, Tensor]:
    rows = x.size(0) if need_input else 0
    return x.new_empty((rows, x.size(1))), weight.new_empty(weight.shape)


@fake("linear_grads_before")
def _fake_before(
    _grad: Tensor,
    _normed: Tensor,
    _columns: Tensor,
    _relu: bool,
    hidden: Tensor,
    weight: Tensor,
    x: Tensor,
    _center: Tensor,
    _threads: int,
) -> tuple[Tensor, Tensor, Tensor]:
    width = hidden.size(1)
    return weight.new_empty(weight.shape), weight.new_empty((width, x.size(1))), weight.new_empty((width,))
