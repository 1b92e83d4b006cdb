"""A linear layer and the batch normalisation of its result in as few passes as their gradients allow."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.ops.checks import check_float
from pyg_batchgnn.ops.folded_norm import FoldedNorm
from pyg_batchgnn.ops.linear import INPUT_DTYPES
from pyg_batchgnn.ops.normed_linear import NormedLinear
from pyg_batchgnn.ops.precision import COMPUTE_DTYPES, compute_dtype


def linear_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
    *,
    eps: float = 1e-5,
    relu: bool = False,
    gated: bool = False,
    out_dtype: torch.dtype | None = None,
    threads: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """``batch_norm(x @ weight.t() + bias)`` with the result's own statistics, or its ReLU.

    Where x does not require a gradient and has at most half as many columns as the result, the normalisation
    is folded into the weight, and the gradient of ``bias``, which shifts the mean alone, is exactly zero. The
    same bits come out on any number of threads. There are first derivatives only.

    Args:
        x: [D, K] float32, float16 (without gradient) or bfloat16, or float64 where the weight is.
        weight: [O, K] of ``out_dtype`` or float32.
        bias: [O] of the weight's dtype.
        scale: [O], the normalisation's weight; ones where None.
        shift: [O], its bias; zeros where None.
        eps: added to the variance.
        relu: whether negative results become zero.
        gated: x is the result of a ReLU, see `linear`.
        out_dtype: float32, bfloat16 or float64; `compute_dtype` of the weight where None.
        threads: at most so many; torch's own number where None.

    Returns:
        [D, O] of ``out_dtype``; the mean [O] and the biased variance [O] of the product's columns, float64,
        without gradients.

    Raises:
        TypeError, ValueError: an argument of another type or shape.
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
    rows = x if x.stride(1) == 1 else x.contiguous()
    count = threads or torch.get_num_threads()
    # Whether gradients are enabled decides nothing: a checkpoint's first forward gives the same bits.
    if not x.requires_grad and 2 * weight.size(1) <= weight.size(0):
        y, mean, variance = FoldedNorm.apply(rows, weight, bias, scale, shift, eps, relu, dtype, count)
    else:
        y, mean, variance = NormedLinear.apply(
            rows, weight, bias, scale, shift, eps, relu, gated, dtype, count
        )
    return y, mean, variance


def _check(x: Tensor, weight: Tensor, dtype: torch.dtype) -> None:
    if dtype not in COMPUTE_DTYPES:
        raise TypeError(f"out_dtype must be float32, bfloat16 or float64, got {dtype}")
    if weight.dim() != 2 or x.dim() != 2 or x.size(1) != weight.size(1):
        raise ValueError(f"x must be [D, K] and weight [O, K], got {list(x.shape)} and {list(weight.shape)}")
    narrower = dtype is torch.float64 and weight.dtype is not torch.float64
    if weight.dtype not in (dtype, torch.float32) or narrower:
        raise TypeError(f"a weight of {weight.dtype} does not go with {dtype} products")
    if x.dtype not in INPUT_DTYPES or (x.dtype is torch.float64) > (dtype is torch.float64):
        raise TypeError(f"x of {x.dtype} does not go with {dtype} products; convert it")
    if x.requires_grad and x.dtype is torch.float16:
        raise TypeError("x of float16 takes no gradient; use bfloat16 or float32")
