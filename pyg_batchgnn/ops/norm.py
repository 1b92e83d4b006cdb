"""Batch and layer normalisation of the rows of a matrix, ReLU and keyed dropout, in few passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyg_batchgnn.ops.checks import (
    check_drop,
    check_float,
    check_matrix,
    check_nodes,
    dropout_scale,
    wide_dtype,
)
from pyg_batchgnn.ops.library import fake, gradient, kernels, thread_count


class BatchNormResult(NamedTuple):
    """The result of `batch_norm`."""

    y: Tensor  # [D, C] of the dtype of x
    mean: Tensor  # [C] float64, the mean that was used, without a gradient; zeros if there are no rows
    variance: Tensor  # [C] float64, biased, likewise


def batch_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    mean: Tensor | None = None,
    variance: Tensor | None = None,
    eps: float = 1e-5,
    relu: bool = False,
) -> BatchNormResult:
    """Computes ``(x - mean) / sqrt(variance + eps) * weight + bias``, or its ReLU.

    This is batch normalisation (Ioffe and Szegedy 2015). Statistics are taken in one pass, in
    blocks of rows that are centred by the mean of a neighbouring block, so that a column loses no
    digits if its mean is much larger than its deviation. Sums over blocks are float64. Results are
    bitwise identical on any number of threads. There are first derivatives only.

    Args:
        x: [D, C] float32, float64 or bfloat16; computed in float32 (float64 if x is).
        weight: [C] of any of these dtypes; None for ones.
        bias: [C]; None for zeros.
        mean: [C], a constant, given together with ``variance``. If both are None, the statistics of
            x are used, with gradients through them.
        variance: [C], biased.
    """
    check_matrix("x", x)
    count = thread_count()  # before any operator, where torch.compile can break
    weight, bias = check_column("weight", weight, x.size(1)), check_column("bias", bias, x.size(1))
    mean, variance = check_column("mean", mean, x.size(1)), check_column("variance", variance, x.size(1))
    if (mean is None) != (variance is None):
        missing = "mean" if mean is None else "variance"
        raise ValueError(f"{missing} is None and the other is not; give both, or neither to use x's own")
    return BatchNormResult(
        *kernels.batch_norm(x.contiguous(), weight, bias, mean, variance, eps, relu, count)
    )


def check_column(name: str, column: Tensor | None, columns: int) -> Tensor | None:
    if column is None:
        return None
    check_float(name, column)
    if column.shape != (columns,):
        raise ValueError(f"{name} must have shape [{columns}], one per column, got {list(column.shape)}")
    return column.contiguous()


@fake("batch_norm")
def _fake(x: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    column = x.new_empty(x.size(1), dtype=torch.float64)
    return torch.empty_like(x), column, torch.empty_like(column)


@fake("batch_norm_grads")
def _fake_grads(_: Tensor, x: Tensor, *options: Any) -> tuple[Tensor, Tensor, Tensor]:
    d_x, weight, bias = _fake(x)
    columns = x.new_empty((5, x.size(1)), dtype=wide_dtype(x.dtype))
    return columns if options[-2] else d_x, weight, bias


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
    found = kernels.batch_norm_grads(
        *(grad.contiguous(), x, weight, bias, mean, variance, ctx.eps, ctx.relu, ctx.own_statistics),
        *(False, ctx.threads),
    )
    return *_as_given(found, weight, bias), *nothing


def _as_given(
    grads: Sequence[Tensor], weight: Tensor | None, bias: Tensor | None
) -> tuple[Tensor | None, ...]:
    """Returns gradients of rows [D, C], and of columns [C] float64 in the columns' own dtypes."""
    d_x, *columns = grads
    pairs = zip((weight, bias), columns, strict=True)
    return d_x, *(None if one is None else found.to(one.dtype) for one, found in pairs)


# Activation #######################################################################################


def activate(
    x: Tensor, *, relu: bool = False, drop: float = 0.0, key: int = 0, node: Tensor | None = None
) -> Tensor:
    """Computes ``dropout(relu(x))`` in the memory of x. Whether an element is kept is a function of
    the key, the node of its row and its column. The backward pass needs one bit per element and no
    value of x, so that the result may be overwritten.

    Args:
        x: [..., C] float32, float64 or bfloat16; overwritten if it is contiguous, else copied.
        drop: the probability of zeroing an element, in [0, 1), rounded to a multiple of 2^-16.
        key: the key of the layer, see `dropout_key`.
        node: [>= rows] int64, the node of each row of x; None for row numbers. All dimensions of x
            but the last are rows.

    Returns:
        x itself if it is contiguous.
    """
    check_float("x", x)
    check_drop(drop)
    if not relu and drop == 0.0:
        return x
    rows = x.numel() // max(1, x.size(-1)) if x.dim() else 1
    check_nodes(node, rows)
    if x.numel() == 0:
        return x
    own = x if x.is_contiguous() else x.contiguous()
    result: Tensor = _Activate.apply(own, relu, drop, key, node)
    return result


class _Activate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, relu: bool, drop: float, key: int, node: Tensor | None) -> Tensor:
        matrix = x.detach().view(-1, x.size(-1) if x.dim() else 1)
        mask = kernels.activate_(matrix, relu, drop, key, node, thread_count())
        ctx.mark_dirty(x)
        ctx.save_for_backward(mask)
        ctx.scale = dropout_scale(drop)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (mask,) = ctx.saved_tensors
        return _mask_grad(grads[0], mask, ctx.scale), None, None, None, None


def _mask_grad(grad: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Returns ``grad * scale`` where the mask has a bit, and zero elsewhere."""
    check_float("grad", grad)
    matrix = grad.contiguous().view(-1, grad.size(-1) if grad.dim() else 1)
    return kernels.mask_grad(matrix, mask, scale, thread_count()).view(grad.shape)


@fake("activate_")
def _fake_mask(x: Tensor, *_: Any) -> Tensor:
    return x.new_empty(x.size(0), (x.size(1) + 7) // 8, dtype=torch.uint8)


@fake("mask_grad")
def _fake_grad(grad: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(grad)


def _save_mask(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001 (torch passes it by name)
    _, mask, ctx.scale, _ = inputs
    ctx.save_for_backward(mask)


@gradient("mask_grad", _save_mask)
def _second(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (mask,) = ctx.saved_tensors
    return _mask_grad(grad, mask, ctx.scale), None, None, None


# Layer normalisation ##############################################################################


def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    relu: bool = False,
    drop: float = 0.0,
    key: int = 0,
    node: Tensor | None = None,
) -> Tensor:
    """Computes ``dropout(relu((x - mean) / sqrt(variance + eps) * weight + bias))`` in one pass,
    with the mean and the biased variance of each row.

    This is layer normalisation (Ba, Kiros and Hinton 2016), followed by `activate`, with the same
    decisions. A row loses no digits if its mean is much larger than its deviation. The backward
    pass keeps x, three numbers per row and, with a ReLU or dropout, one bit per element, so that
    the result may be overwritten. Gradients are bitwise identical on any number of threads. There
    are first derivatives only.

    Args:
        x: [D, C] float32, float64 or bfloat16; computed in float32 (float64 if x is).
        weight: [C] of any of these dtypes; None for ones.
        bias: [C]; None for zeros.
        drop, key, node: see `activate`.

    Returns:
        [D, C] of the dtype of x.
    """
    check_matrix("x", x)
    check_drop(drop)
    check_nodes(node, x.size(0))
    count = thread_count()
    weight, bias = check_column("weight", weight, x.size(1)), check_column("bias", bias, x.size(1))
    y, _, _ = kernels.layer_norm(x.contiguous(), weight, bias, eps, relu, drop, key, node, count)
    return y


@fake("layer_norm")
def _fake_rows(
    x: Tensor, _: Tensor | None, __: Tensor | None, ___: float, relu: bool, drop: float, *____: Any
) -> tuple[Tensor, Tensor, Tensor]:
    rows, columns = x.shape
    masked, norms = rows if relu or drop > 0.0 else 0, x.new_empty(rows, 3, dtype=wide_dtype(x.dtype))
    return torch.empty_like(x), norms, x.new_empty(masked, (columns + 7) // 8, dtype=torch.uint8)


@fake("layer_norm_grads")
def _fake_row_grads(_: Tensor, x: Tensor, *__: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _fake(x)


def _save_rows(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    x, weight, bias, _, _, drop, _, _, ctx.threads = inputs
    ctx.scale = dropout_scale(drop)
    ctx.mark_non_differentiable(output[1], output[2])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, weight, bias, output[1], output[2])


@gradient("layer_norm", _save_rows)
def _row_gradients(ctx: Any, grad: Tensor | None, *_: Tensor | None) -> tuple[Tensor | None, ...]:
    nothing = (None,) * 6
    if grad is None:
        return None, None, None, *nothing
    x, weight, bias, norms, mask = ctx.saved_tensors
    found = kernels.layer_norm_grads(grad.contiguous(), x, weight, norms, mask, ctx.scale, ctx.threads)
    return *_as_given(found, weight, bias), *nothing
