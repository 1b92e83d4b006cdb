"""Batch normalisation of the rows of a matrix, with an optional ReLU in the same pass."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyg_batchgnn.ops.checks import check_float, check_matrix
from pyg_batchgnn.ops.library import fake, gradient, kernels


class BatchNormResult(NamedTuple):
    """The result of `batch_norm`.

    Attributes:
        y: [D, C] of the dtype of x.
        mean: [C] float64, the mean that was used, without a gradient; zeros if there are no rows.
        variance: [C] float64, biased, likewise.
    """

    y: Tensor
    mean: Tensor
    variance: Tensor


class BatchNormGrads(NamedTuple):
    """The gradients of `batch_norm`.

    Attributes:
        x: [D, C] of the dtype of x.
        weight: [C] float64.
        bias: [C] float64.
    """

    x: Tensor
    weight: Tensor
    bias: Tensor


def batch_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    mean: Tensor | None = None,
    variance: Tensor | None = None,
    eps: float = 1e-5,
    relu: bool = False,
    threads: int | None = None,
) -> BatchNormResult:
    """Computes ``(x - mean) / sqrt(variance + eps) * weight + bias``, or its ReLU.

    This is batch normalisation (Ioffe and Szegedy 2015). Statistics are taken in one pass, in
    blocks of rows. Each block is centred by the mean of a neighbouring block, so a column loses no
    digits if its mean is much larger than its deviation. Sums over blocks are float64. The result
    has the same bits on any number of threads. There are first derivatives only.

    Args:
        x: [D, C] float32, float64 or bfloat16; computed in float32 (float64 where x is).
        weight: [C] of any of these types; ones where None.
        bias: [C]; zeros where None.
        mean: [C], a constant, given together with ``variance``. If both are None, the statistics of
            x are used, with gradients through them.
        variance: [C], biased.
        eps: added to the variance.
        relu: sets negative results to zero.
        threads: the largest number of threads; torch's own number where None.

    Raises:
        TypeError, ValueError: an argument has another type, shape or device, or only one of mean
            and variance is given.
    """
    check_matrix("x", x)
    count = threads or torch.get_num_threads()  # before any operator, where torch.compile can break
    weight, bias = _column("weight", weight, x.size(1)), _column("bias", bias, x.size(1))
    mean, variance = _column("mean", mean, x.size(1)), _column("variance", variance, x.size(1))
    if (mean is None) != (variance is None):
        missing = "mean" if mean is None else "variance"
        raise ValueError(f"{missing} is None and the other is not; give both, or neither to use x's own")
    return BatchNormResult(
        *kernels.batch_norm(x.contiguous(), weight, bias, mean, variance, eps, relu, count)
    )


def _column(name: str, column: Tensor | None, columns: int) -> Tensor | None:
    """Returns one checked number per column, contiguous."""
    if column is None:
        return None
    check_float(name, column)
    if column.shape != (columns,):
        raise ValueError(
            f"{name} must have shape [{columns}], one entry per column of x, got {list(column.shape)}"
        )
    return column.contiguous()


@fake("batch_norm")
def _fake(x: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    column = x.new_empty(x.size(1), dtype=torch.float64)
    return torch.empty_like(x), column, torch.empty_like(column)


@fake("batch_norm_grads")
def _fake_grads(_: Tensor, x: Tensor, *__: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _fake(x)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    x, weight, bias, mean, _, ctx.eps, ctx.relu, ctx.threads = inputs
    ctx.own_statistics = mean is None
    ctx.mark_non_differentiable(output[1], output[2])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, weight, bias, output[1], output[2])


@gradient("batch_norm", _save)
def _gradients(ctx: Any, grad: Tensor | None, *_: Tensor | None) -> tuple[Tensor | None, ...]:
    nothing = (None,) * 5
    if grad is None:
        return None, None, None, *nothing
    x, weight, bias, mean, variance = ctx.saved_tensors
    found = BatchNormGrads(
        *kernels.batch_norm_grads(
            *(grad.contiguous(), x, weight, bias, mean, variance, ctx.eps, ctx.relu, ctx.own_statistics),
            ctx.threads,
        )
    )
    return (
        found.x,
        None if weight is None else found.weight.to(weight.dtype),
        None if bias is None else found.bias.to(bias.dtype),
        *nothing,
    )
