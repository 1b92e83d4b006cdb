"""ReLU and dropout in place."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn import ops


class ReLU(torch.nn.ReLU):
    """``torch.nn.ReLU`` that keeps one bit an element for the backward pass.

    Args:
        inplace: whether to overwrite the input, which must then not be needed by another backward pass
            (torch says so where it is).
    """

    def __init__(self, inplace: bool = True) -> None:
        super().__init__(inplace)

    def forward(self, input: Tensor) -> Tensor:
        """Float32, float64 or bfloat16 of any shape."""
        return ops.activate(input if self.inplace else input.clone(), relu=True)


class Dropout(torch.nn.Dropout):
    """``torch.nn.Dropout`` (Srivastava et al. 2014), keyed.

    Whether an element is dropped is a function of (key, node, column), so a forward pass can be repeated from
    its key, on any number of threads. One bit an element is kept for the backward pass.

    Args:
        p: probability of zeroing an element, in [0, 1), rounded to a multiple of 2^-16.
        inplace: whether to overwrite the input while training.

    Raises:
        ValueError: p is not in [0, 1).
    """

    def __init__(self, p: float = 0.5, inplace: bool = True) -> None:
        ops.check_drop(p)
        super().__init__(p, inplace)

    def forward(self, input: Tensor, key: int | None = None, node: Tensor | None = None) -> Tensor:
        """`input` [..., C] float; the same in evaluation mode.

        Args:
            input: float32, float64 or bfloat16.
            key: see `pyg_batchgnn.ops.dropout_key`; drawn from torch's default generator where None.
            node: [rows] int64, what rows are keyed by; their numbers where None.
        """
        if not self.training or self.p == 0.0:
            return input
        key = ops.drawn_key() if key is None else key
        return ops.activate(input if self.inplace else input.clone(), drop=self.p, key=key, node=node)
