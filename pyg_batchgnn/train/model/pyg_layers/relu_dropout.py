"""ReLU and dropout in one pass that draws one random byte per element.

``F.dropout`` draws one Bernoulli number per element, on one thread, which takes a fifth to a
quarter of a training step on a CPU. Here a 64-bit word serves eight elements. The zeros of ReLU and
of dropout share one mask. The backward pass reads the mask off the output, so only the output is
kept.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from pyg_batchgnn import ops

_FULL_RANGE = -(2**63)


def keep_mask(shape: torch.Size, drop: float, dtype: torch.dtype) -> tuple[Tensor, float]:
    """Returns a mask of ones (kept) and zeros, and the exact probability that an element is kept.

    The random numbers come from torch's default generator. A probability that is a multiple of
    1/256 takes one byte per element and is exact. Others take two bytes and are rounded to a
    multiple of 1/65536.

    Args:
        shape: of the mask.
        drop: the probability of a zero.
        dtype: of the mask.
    """
    keep = 1.0 - drop
    raw, levels = (torch.uint8, 2**8) if (keep * 2**8).is_integer() else (torch.int16, 2**16)
    kept_levels = round(keep * levels)
    count = shape.numel()
    bytes_needed = count * raw.itemsize
    words = torch.empty((bytes_needed + 7) // 8, dtype=torch.int64).random_(_FULL_RANGE, None)
    draws = words.view(raw)[:count].view(shape)
    lowest = torch.iinfo(raw).min
    mask = torch.empty(shape, dtype=dtype)
    torch.lt(draws, lowest + kept_levels, out=mask)
    return mask, kept_levels / levels


class _ReluDropout(torch.autograd.Function):
    """The in-place function y = relu(x) * mask / keep. dy/dx is 1 / keep where y > 0, else 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, drop: float) -> Tensor:
        mask, keep = keep_mask(x.shape, drop, x.dtype)
        x.relu_().mul_(mask).mul_(1.0 / keep)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        ctx.keep = keep
        return x

    @staticmethod
    @ops.first_order
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (y,) = ctx.saved_tensors
        grad = torch.ops.aten.threshold_backward(grads[0], y, 0)
        return grad.mul_(1.0 / ctx.keep), None


class ReluDropout(nn.Module):
    """The module ``dropout(relu(x))``. It overwrites its input, which no other backward may need.

    Args:
        drop: the probability that an element is set to zero in training, in [0, 1).
    """

    def __init__(self, drop: float) -> None:
        super().__init__()
        if not 0.0 <= drop < 1.0:
            raise ValueError(f"dropout must be at least 0 and below 1, got {drop}")
        self.drop = drop

    def forward(self, x: Tensor) -> Tensor:
        """Returns `x`, a float tensor of any shape, overwritten."""
        if self.training and self.drop > 0.0:
            result: Tensor = _ReluDropout.apply(x, self.drop)
            return result
        return x.relu_()

    def extra_repr(self) -> str:
        return f"drop={self.drop}"
