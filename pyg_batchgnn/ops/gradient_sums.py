"""Sums over the columns of a gradient, passed from its writer to its reader beside autograd."""

from __future__ import annotations

import torch
from torch import Tensor


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
