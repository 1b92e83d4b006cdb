"""The first rows of a matrix, whose gradient is written into memory that is reused."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn.ops.first_order import first_order
from pyg_batchgnn.ops.memory import empty


def first_rows(x: Tensor, rows: int) -> Tensor:
    """Returns ``x[:rows]``, a view."""
    if rows == x.size(0) or not (torch.is_grad_enabled() and x.requires_grad):
        return x[:rows]
    result: Tensor = _FirstRows.apply(x, rows)
    return result


def padded(grad: Tensor, rows: int) -> Tensor:
    """Returns the gradient of first rows as that of all rows: zeros follow."""
    given = grad.size(0)
    if given == rows:
        return grad
    out = empty((rows, grad.size(1)), grad.dtype)
    out[:given] = grad
    out[given:].zero_()
    return out


class _FirstRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: int) -> Tensor:
        ctx.rows = x.size(0)
        return x[:rows]

    @staticmethod
    @first_order
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return padded(grads[0], ctx.rows), None
