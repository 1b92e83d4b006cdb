"""Products whose normalisation is folded into the weight: `linear_norm` of rows without a gradient.

The statistics of the result follow from the mean and covariance of the columns of the rows. So the
product before the normalisation is never written, neither here nor for the gradients. The
covariance costs K / 2 multiplications per element of the [D, K] rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyg_batchgnn.ops.first_order import first_order
from pyg_batchgnn.ops.library import fake, kernels
from pyg_batchgnn.ops.linear_autograd import LinearGrads


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
            like: [D, O] rows, of which the gradient is.
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
        gradient: receives the gradients from that product.
    """

    x: Tensor
    center: Tensor
    gradient: HiddenGradient


class Folded(NamedTuple):
    """A weight with the normalisation of its product folded in.

    Attributes:
        weight: [O, K] of the weight's dtype, the folded weight.
        constant: [O], what is added to the folded product.
        mean: [O] float64 of the unfolded product's columns, without the bias.
        variance: [O] float64, biased.
        center: [K] float64, the mean of the columns of x.
        spread: [O, K] float64, the weight times the covariance of the columns of x.
    """

    weight: Tensor
    constant: Tensor
    mean: Tensor
    variance: Tensor
    center: Tensor
    spread: Tensor


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
        folded = Folded(*kernels.fold_norm(x, own, scale, shift, eps, dtype, threads))
        y, mask = kernels.linear(
            *([x], [None], [folded.weight], folded.constant, x.size(0), 1, dtype, relu),
            *(0.0, 0, None, False, threads),
        )
        ctx.save_for_backward(x, own, scale, mask, folded.variance, folded.center, folded.spread)
        ctx.eps, ctx.threads, ctx.hidden = eps, threads, hidden
        ctx.bias = None if bias is None else bias.dtype
        ctx.shift = None if shift is None else shift.dtype
        mean = folded.mean if bias is None else folded.mean + bias.double()
        ctx.mark_non_differentiable(mean, folded.variance, folded.center)
        ctx.set_materialize_grads(False)
        return y, mean, folded.variance, folded.center

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
    """Returns the gradients of the folded weight and of the shift."""
    found = LinearGrads(
        *kernels.linear_grads(
            *(grad.contiguous(), mask, 1.0, [x], [None], [weight], center, 1, False, [False], True, True),
            threads,
        )
    )
    return found.weights[0], found.bias


# Shapes ###########################################################################################


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
def _fake_grads(_: Tensor, weight: Tensor, *__: Any) -> tuple[Tensor, Tensor]:
    return weight.new_empty(weight.shape), weight.new_empty((weight.size(0),), dtype=torch.float64)
