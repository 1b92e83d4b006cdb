"""A linear layer and the batch normalisation of its result, in as few passes as possible."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pyg_batchgnn.ops.checks import FLOATS, TABLES, check_dense, check_float
from pyg_batchgnn.ops.library import kernels
from pyg_batchgnn.ops.linear import compute_dtype
from pyg_batchgnn.ops.normed_linear import FoldedNorm, GradientSums, Hidden, HiddenGradient, NormedLinear


class LinearNorm(NamedTuple):
    """The result of `linear_norm`.

    Attributes:
        y: [D, O] of the dtype that is computed in.
        mean: [O] float64, of the product's columns, without a gradient.
        variance: [O] float64, biased, likewise.
    """

    y: Tensor
    mean: Tensor
    variance: Tensor


class LinearNormHidden(NamedTuple):
    """The result of `linear_norm_hidden`.

    Attributes:
        y, mean, variance: as in `LinearNorm`.
        hidden: what the reader of ``y`` is given; None where it makes ordinary gradients.
    """

    y: Tensor
    mean: Tensor
    variance: Tensor
    hidden: Hidden | None


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
    hidden: Hidden | None = None,
    out_dtype: torch.dtype | None = None,
    threads: int | None = None,
) -> LinearNorm:
    """Computes ``batch_norm(x @ weight.t() + bias)`` with the statistics of the product, or its
    ReLU.

    The normalisation is folded into the weight if x requires no gradient and has at most half as
    many columns as the result. The gradient of ``bias`` is exactly zero, because a bias shifts only
    the mean. The result has the same bits on any number of threads. There are first derivatives
    only.

    Args:
        x: [D, K] float32, float16 (without a gradient) or bfloat16, or float64 if the weight is.
        weight: [O, K] of ``out_dtype`` or float32.
        bias: [O] of the dtype of the weight.
        scale: [O], the weight of the normalisation; ones where None.
        shift: [O], the bias of the normalisation; zeros where None.
        after_relu: x is the result of a ReLU, see `linear`.
        hidden: from `linear_norm_hidden`, if x is its result and nothing else reads x.
        out_dtype: float32, bfloat16 or float64; `compute_dtype` of the weight where None.
    """
    dtype = out_dtype or compute_dtype(weight)
    _check(x, weight, dtype)
    bias, scale, shift = _columns(weight, bias, scale, shift)
    known = _known(hidden, x, after_relu, dtype)
    rows = _rows(x)
    count = threads or torch.get_num_threads()
    if _folds(x, weight):
        y, mean, variance, _ = FoldedNorm.apply(rows, weight, bias, scale, shift, eps, relu, dtype, count)
    else:
        y, mean, variance = NormedLinear.apply(
            rows, weight, bias, scale, shift, eps, relu, after_relu, dtype, count, known
        )
    return LinearNorm(y, mean, variance)


def linear_norm_hidden(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
    *,
    eps: float = 1e-5,
    threads: int | None = None,
) -> LinearNormHidden:
    """Computes `linear_norm` with a ReLU, for a result that only one product reads.

    That product is `linear_norm` or `linear_norm_on_read` with ``after_relu`` and with the last
    value returned here as ``hidden``. It computes the gradients of this layer together with its
    own. The gradient of the result is never written, so nothing else may ask for it. A backward
    pass to which another reader of the result or a hook on it has contributed raises RuntimeError.

    ``hidden`` is None if x takes a gradient or has more than half as many columns as the result,
    and in bfloat16.
    """
    dtype = compute_dtype(weight)
    if dtype is torch.bfloat16 or not _folds(x, weight):
        plain = linear_norm(x, weight, bias, scale, shift, eps=eps, relu=True, threads=threads)
        return LinearNormHidden(*plain, None)
    _check(x, weight, dtype)
    bias, scale, shift = _columns(weight, bias, scale, shift)
    rows, gradient = _rows(x), HiddenGradient()
    y, mean, variance, center = FoldedNorm.apply(
        rows, weight, bias, scale, shift, eps, True, dtype, threads or torch.get_num_threads(), gradient
    )
    return LinearNormHidden(y, mean, variance, Hidden(rows, center, gradient))


class LinearNormOnRead(NamedTuple):
    """The result of `linear_norm_on_read`.

    Attributes:
        product: [D, O] float32, in place of the values. It takes the gradient of the values.
        columns: [3, O] float32, center, scale and shift, see `aggregate_normed`.
        mean: [O] float64, of the columns of the product, without a gradient.
        variance: [O] float64, biased, likewise.
        sums: receives the sums of the gradient from `aggregate_normed`.
    """

    product: Tensor
    columns: Tensor
    mean: Tensor
    variance: Tensor
    sums: GradientSums


def linear_norm_on_read(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
    *,
    eps: float = 1e-5,
    after_relu: bool = False,
    hidden: Hidden | None = None,
    threads: int | None = None,
) -> LinearNormOnRead:
    """Computes the product of `linear_norm` and leaves normalisation and ReLU to its reader.

    `aggregate_normed` computes the values when it reads them. It works in float32. Arguments and
    gradients are those of `linear_norm`.
    """
    _check(x, weight, torch.float32)
    bias, scale, shift = _columns(weight, bias, scale, shift)
    known = _known(hidden, x, after_relu, torch.float32)
    rows, count, sums = _rows(x), threads or torch.get_num_threads(), GradientSums()
    product, mean, variance = NormedLinear.apply(
        rows, weight, bias, scale, shift, eps, True, after_relu, torch.float32, count, known, sums
    )
    columns = kernels.batch_norm_columns(_detached(scale), _detached(shift), mean, variance, eps)
    return LinearNormOnRead(product, columns, mean, variance, sums)


def _folds(x: Tensor, weight: Tensor) -> bool:
    return not x.requires_grad and 2 * weight.size(1) <= weight.size(0)


def _known(hidden: Hidden | None, x: Tensor, after_relu: bool, dtype: torch.dtype) -> Hidden | None:
    if hidden is None:
        return None
    if not after_relu or hidden.x.size(0) != x.size(0):
        raise ValueError(
            f"hidden goes with after_relu=True and the {hidden.x.size(0)} rows that came with it, "
            f"got after_relu={after_relu} and {x.size(0)} rows"
        )
    for name, tensor, shape in (
        ("x", hidden.x, hidden.x.shape),
        ("center", hidden.center, hidden.x.shape[1:]),
    ):
        check_dense(f"hidden.{name}", tensor)
        if hidden.x.dim() != 2 or tensor.shape != shape or hidden.center.dtype is not torch.float64:
            raise ValueError("hidden must be what linear_norm_hidden returned")
    return None if dtype is torch.bfloat16 else hidden


def _rows(x: Tensor) -> Tensor:
    return x if x.stride(1) == 1 else x.contiguous()


def _detached(column: Tensor | None) -> Tensor | None:
    return None if column is None else column.detach()


def _columns(
    weight: Tensor, bias: Tensor | None, scale: Tensor | None, shift: Tensor | None
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    for name, column in (("bias", bias), ("scale", scale), ("shift", shift)):
        if column is not None:
            check_float(name, column)
            if column.shape != weight.shape[:1]:
                raise ValueError(f"{name} must be [{weight.size(0)}], got {list(column.shape)}")
    if bias is not None and bias.dtype is not weight.dtype:
        raise TypeError(f"bias must have the weight's type, {weight.dtype}, got {bias.dtype}")
    return _contiguous(bias), _contiguous(scale), _contiguous(shift)


def _contiguous(column: Tensor | None) -> Tensor | None:
    return None if column is None else column.contiguous()


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
