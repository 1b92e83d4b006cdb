"""The shapes of the results of dense layers, and their gradients."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyg_batchgnn.ops.activation import dropout_scale
from pyg_batchgnn.ops.library import fake, gradient, kernels


class LinearGrads(NamedTuple):
    """The gradients of a dense layer, each of the dtype of what it belongs to.

    Attributes:
        inputs: [N, K] of each input; [0, K] where it is not wanted.
        weights: [O, K] of each weight; no entry where they are not wanted.
        bias: [O]; [0] where it is not wanted.
    """

    inputs: list[Tensor]
    weights: list[Tensor]
    bias: Tensor


@fake("linear")
def _fake_linear(
    inputs: list[Tensor],
    _rows: list[Tensor | None],
    weights: list[Tensor],
    _bias: Tensor | None,
    num_rows: int,
    _groups: int,
    out_dtype: torch.dtype,
    relu: bool,
    drop: float,
    *_: Any,
) -> tuple[Tensor, Tensor]:
    outputs = weights[0].size(0)
    mask = (num_rows, (outputs + 7) // 8) if relu or drop > 0 else (0, 0)
    y = inputs[0].new_empty((num_rows, outputs), dtype=out_dtype)
    return y, inputs[0].new_empty(mask, dtype=torch.uint8)


@fake("linear_grads")
def _fake_grads(
    _grad: Tensor,
    _mask: Tensor,
    _scale: float,
    inputs: list[Tensor],
    _rows: list[Tensor | None],
    weights: list[Tensor],
    _center: Tensor | None,
    _groups: int,
    _after_relu: bool,
    need_input: list[bool],
    need_weight: bool,
    need_bias: bool,
    _threads: int,
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    d_inputs = [
        x.new_empty((x.size(0) if need else 0, x.size(1))) for x, need in zip(inputs, need_input, strict=True)
    ]
    d_weights = [weight.new_empty(weight.shape) for weight in weights] if need_weight else []
    return d_inputs, d_weights, weights[0].new_empty((weights[0].size(0) if need_bias else 0,))


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    tables, rows, weights, _, _, groups, _, _, drop, _, _, after_relu, threads = inputs
    mask = output[1]
    ctx.mark_non_differentiable(mask)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(mask, *tables, *weights, *(row for row in rows if row is not None))
    ctx.placed = [row is not None for row in rows]
    ctx.groups, ctx.after_relu, ctx.threads = groups, after_relu, threads
    ctx.scale = dropout_scale(drop) if drop > 0 else 1.0


@gradient("linear", _save)
def _differentiate(ctx: Any, grad: Tensor | None, _mask: None) -> tuple[Any, ...]:
    count = len(ctx.placed)
    nothing: list[Tensor | None] = [None] * count
    # Without a missing entry torch treats a list of optional tensors as a list of tensors.
    for_rows = nothing if all(ctx.placed) else None
    if grad is None:
        return (nothing, for_rows, nothing, *[None] * 10)
    mask, *saved = ctx.saved_tensors
    tables, weights, rest = saved[:count], saved[count : 2 * count], iter(saved[2 * count :])
    need_input, _, need_weight, need_bias, *_ = ctx.needs_input_grad
    need_input = list(need_input)
    # The kernel sums the gradient of the bias while it computes those of the weights.
    with_weights = any(need_weight) or bool(need_bias)
    found = LinearGrads(
        *kernels.linear_grads(
            grad.contiguous(),
            mask,
            ctx.scale,
            tables,
            [next(rest) if placed else None for placed in ctx.placed],
            weights,
            None,
            ctx.groups,
            ctx.after_relu,
            need_input,
            with_weights,
            bool(need_bias),
            ctx.threads,
        )
    )
    return (
        [d if need else None for d, need in zip(found.inputs, need_input, strict=True)],
        for_rows,
        found.weights if any(need_weight) else nothing,
        found.bias if need_bias else None,
        *[None] * 9,
    )
