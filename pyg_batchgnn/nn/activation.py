"""ReLU and dropout in place."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn import ops


class ReLU(torch.nn.ReLU):
    """A ``torch.nn.ReLU`` that keeps one bit per element for the backward pass.

    Args:
        inplace: overwrites the input. No other backward pass may need it then; torch raises an
            error if one does.
    """

    def __init__(self, inplace: bool = True) -> None:
        super().__init__(inplace)

    def forward(self, input: Tensor) -> Tensor:
        """Returns the ReLU of a float32, float64 or bfloat16 tensor of any shape."""
        return ops.activate(input if self.inplace else input.clone(), relu=True)


class Dropout(torch.nn.Dropout):
    """A ``torch.nn.Dropout`` (Srivastava et al. 2014) with a key.

    The decision to drop an element is a function of (key, node, column). So a forward pass can be
    repeated from its key, on any number of threads. One bit per element is kept for the backward
    pass.

    Args:
        p: the probability of zeroing an element, in [0, 1), rounded to a multiple of 2^-16.
        inplace: overwrites the input in training mode.

    Raises:
        ValueError: p is not in [0, 1).
    """

    def __init__(self, p: float = 0.5, inplace: bool = True) -> None:
        ops.check_drop(p)
        super().__init__(p, inplace)

    def forward(self, input: Tensor, key: int | None = None, node: Tensor | None = None) -> Tensor:
        """Returns the input [..., C] after dropout, or unchanged in evaluation mode.

        Args:
            input: float32, float64 or bfloat16.
            key: a key of `pyg_batchgnn.ops.dropout_key`; drawn from torch's default generator where
                None.
            node: [rows] int64, the id of each row; row numbers where None.
        """
        if not self.training or self.p == 0.0:
            return input
        key = ops.drawn_key() if key is None else key
        return ops.activate(input if self.inplace else input.clone(), drop=self.p, key=key, node=node)
