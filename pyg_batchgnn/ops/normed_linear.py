"""A product and then its normalisation: `linear_norm` of rows with a gradient.

In the backward pass the gradient of the product is computed block by block where the gradients of
weight and rows read it. It is never written.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyg_batchgnn.ops.library import fake, first_order, kernels


class NormedLinear(torch.autograd.Function):
    """`linear_norm` of rows with a gradient or with many columns.

    With ``sums`` the product is returned and its reader computes the normalised values. The
    gradient of the values arrives here all the same. The reader may store its column
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
            product, mean, variance = _product(x, own, bias, dtype, after_relu, threads)
            y, mean, variance = kernels.batch_norm(product, scale, shift, mean, variance, eps, relu, threads)
        else:
            y, mean, variance = kernels.linear_moments(x, own, bias, dtype, threads)
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
    sums = None if ctx.sums is None else ctx.sums.take(grad)
    x, weight, product, scale, shift, mean, variance, *before = ctx.saved_tensors
    # `GradientColumns` in csrc/kernels/nn/norm.h, and the gradients of scale and shift.
    columns, d_scale, d_shift = kernels.batch_norm_grad_columns(
        grad, product, scale, shift, mean, variance, sums, ctx.eps, ctx.relu, ctx.threads
    )
    need_input = ctx.needs_input_grad[0]
    if before and need_input:
        d_weight, d_folded, d_shift_before = kernels.linear_grads_before(
            grad, product, columns, ctx.relu, x, weight, *before, ctx.threads
        )
        d_x = ctx.hidden.leave(x, d_folded, d_shift_before)
    else:
        d_x, d_weight = kernels.linear_grads_normed(
            grad, product, columns, ctx.relu, x, weight, ctx.after_relu, need_input, ctx.threads
        )
    return (
        d_x if need_input else None,
        d_weight,
        None if ctx.bias is None else torch.zeros(weight.size(0), dtype=ctx.bias),
        None if scale is None else d_scale.to(scale.dtype),
        None if shift is None else d_shift.to(shift.dtype),
    )


def _product(
    x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, after_relu: bool, threads: int
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Returns the product with the mean and the variance of its columns; without them if the
    product is rounded."""
    if dtype is not torch.bfloat16:
        return kernels.linear_moments(x, weight, bias, dtype, threads)
    product, _ = kernels.linear(
        [x], [None], [weight], bias, x.size(0), 1, dtype, False, 0.0, 0, None, after_relu, threads
    )
    return product, None, None


# Normalisation folded into the weight #############################################################

# Products whose normalisation is folded into the weight: `linear_norm` of rows without a gradient.
#
# The statistics of the result follow from the mean and covariance of the columns of the rows. So
# the product before the normalisation is never written, neither here nor for the gradients. The
# covariance costs K / 2 multiplications per element of the [D, K] rows.


class HiddenGradient:
    """A side channel of autograd for the gradient of the result of a `FoldedNorm`.

    The product that reads the result sums its gradient at once and never writes it. It returns a
    stand-in to autograd, zeros of the same shape, which must arrive unchanged
    (docs/decisions/0022).
    """

    def __init__(self) -> None:
        self._left: tuple[Tensor, Tensor, Tensor] | None = None

    def leave(self, like: Tensor, d_folded: Tensor, d_shift: Tensor) -> Tensor:
        """Stores the sums of a gradient and returns the stand-in for it.

        Args:
            like: [D, O], the rows with that gradient.
            d_folded: [O, K], the gradient of the folded weight.
            d_shift: [O], the gradient of the shift.
        """
        stand_in = like.new_zeros(()).expand(like.shape)
        self._left = stand_in, d_folded, d_shift
        return stand_in

    def take(self, grad: Tensor) -> tuple[Tensor, Tensor] | None:
        """Returns the gradients of the folded weight and the shift, once; None if none were stored.

        Raises:
            RuntimeError: ``grad`` is not the stand-in.
        """
        left, self._left = self._left, None
        if left is None:
            return None
        stand_in, *sums = left
        if grad is not stand_in:
            raise RuntimeError(
                "the rows of linear_norm_hidden have another reader than the product that got their "
                "`hidden`, or a hook that changes their gradient; use linear_norm for them"
            )
        return sums[0], sums[1]


class Hidden(NamedTuple):
    """The origin of rows that only one product reads.

    Attributes:
        x: [D, K], the rows that they were computed from.
        center: [K] float64, the mean of the columns of x.
    """

    x: Tensor
    center: Tensor
    gradient: HiddenGradient


class FoldedNorm(torch.autograd.Function):
    """`linear_norm` of rows without a gradient. It also returns the mean of their columns."""

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
        hidden: HiddenGradient | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        own = weight.contiguous()
        # The folded weight and bias, the mean (without the bias) and variance of the product, the
        # mean of the columns of x, and the weight times their covariance.
        folded, constant, mean, variance, center, spread = kernels.fold_norm(
            x, own, scale, shift, eps, dtype, threads
        )
        y, mask = kernels.linear(
            [x], [None], [folded], constant, x.size(0), 1, dtype, relu, 0.0, 0, None, False, threads
        )
        ctx.save_for_backward(x, own, scale, mask, variance, center, spread)
        ctx.eps, ctx.threads, ctx.hidden = eps, threads, hidden
        ctx.bias = None if bias is None else bias.dtype
        ctx.shift = None if shift is None else shift.dtype
        mean = mean if bias is None else mean + bias.double()
        ctx.mark_non_differentiable(mean, variance, center)
        ctx.set_materialize_grads(False)
        return y, mean, variance, center

    @staticmethod
    @first_order
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        grad = grads[0]
        if grad is None:
            return (None,) * 10
        x, weight, scale, mask, variance, center, spread = ctx.saved_tensors
        left = None if ctx.hidden is None else ctx.hidden.take(grad)
        d_folded, d_shift = left or _sums(grad, mask, x, weight, center, ctx.threads)
        d_weight, d_scale = kernels.fold_norm_grads(d_folded, weight, scale, variance, spread, ctx.eps)
        return (
            None,
            d_weight,
            None if ctx.bias is None else torch.zeros(weight.size(0), dtype=ctx.bias),
            None if scale is None else d_scale.to(scale.dtype),
            None if ctx.shift is None else d_shift.to(ctx.shift),
            *[None] * 5,
        )


def _sums(
    grad: Tensor, mask: Tensor, x: Tensor, weight: Tensor, center: Tensor, threads: int
) -> tuple[Tensor, Tensor]:
    _, (d_weight,), d_bias = kernels.linear_grads(
        grad.contiguous(), mask, 1.0, [x], [None], [weight], center, 1, False, [False], True, True, threads
    )
    return d_weight, d_bias


class GradientSums:
    """A side channel of autograd for the column sums of one gradient.

    Between writer and reader autograd may add another gradient, and a hook may change it. So the
    sums are valid for the very tensor that was written, and only if it has not been written to
    since. The tensor is held until it is read. That keeps autograd from adding to it in place
    (docs/decisions/0022).
    """

    def __init__(self) -> None:
        self._left: tuple[Tensor, int, Tensor] | None = None

    def leave(self, grad: Tensor, sums: Tensor) -> None:
        """Stores the sums of ``grad``, [2, C] float64."""
        if sums.shape != (2, grad.size(1)) or sums.dtype is not torch.float64 or not sums.is_contiguous():
            raise ValueError(
                f"sums must be contiguous float64 of shape [2, {grad.size(1)}], got {sums.dtype} of "
                f"{list(sums.shape)}"
            )
        self._left = grad, grad._version, sums

    def take(self, grad: Tensor) -> Tensor | None:
        """Returns the sums of ``grad``, once; None if there are none."""
        left, self._left = self._left, None
        if left is None:
            return None
        written, version, sums = left
        return sums if grad is written and grad._version == version else None


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
    _grad: Tensor, _normed: Tensor, _columns: Tensor, _relu: bool, x: Tensor, weight: Tensor, *rest: Any
) -> tuple[Tensor, Tensor]:
    _after_relu, need_input, _threads = rest
    rows = x.size(0) if need_input else 0
    return x.new_empty((rows, x.size(1))), weight.new_empty(weight.shape)


@fake("linear_grads_before")
def _fake_before(
    _grad: Tensor,
    _normed: Tensor,
    _columns: Any,
    _relu: bool,
    hidden: Tensor,
    weight: Tensor,
    x: Tensor,
    *_: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    width = hidden.size(1)
    return weight.new_empty(weight.shape), weight.new_empty((width, x.size(1))), weight.new_empty((width,))


@fake("fold_norm")
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


@fake("fold_norm_grads")
def _fake_folded_grads(_: Tensor, weight: Tensor, *__: Any) -> tuple[Tensor, Tensor]:
    return weight.new_empty(weight.shape), weight.new_empty((weight.size(0),), dtype=torch.float64)
