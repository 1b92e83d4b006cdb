"""Sums over a gradient's columns, handed from who writes the gradient to who reads it."""

from __future__ import annotations

from torch import Tensor


class GradientSums:
    """A place for the sums of one gradient.

    Between writer and reader autograd may add another gradient, and a hook may change it. So sums hold for
    the very tensor that was written, as long as nobody has written to it since. It is held until it is read,
    which keeps autograd from adding to it in place.
    """

    def __init__(self) -> None:
        self._left: tuple[Tensor, int, Tensor] | None = None

    def leave(self, grad: Tensor, sums: Tensor) -> None:
        """``sums``, [2, C] float64, are those of ``grad``."""
        self._left = grad, grad._version, sums

    def take(self, grad: Tensor) -> Tensor | None:
        """The sums left for ``grad``, once; None where there are none."""
        left, self._left = self._left, None
        if left is None:
            return None
        written, version, sums = left
        return sums if grad is written and grad._version == version else None
