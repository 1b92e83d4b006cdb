"""The steps after a convolution in a model: normalisation, activation and dropout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.nn.linear import is_watched
from pyg_batchgnn.nn.norm import fused_norm
from pyg_batchgnn.nn.terms import Update


def fuses_relu(act: Any) -> bool:
    """Returns whether an activation is a ReLU that nobody watches, so that others may compute
    it."""
    return type(act) is torch.nn.ReLU and not is_watched(act)


@dataclass(frozen=True)
class After:
    """The steps after a convolution.

    Attributes:
        norm: the normalisation.
        act: the activation, or None.
        act_first: applies the activation before the normalisation, not after it.
        drop: the probability of zeroing an element in training mode.
        training: whether the model is in training mode.
    """

    norm: torch.nn.Module
    act: Callable[[Tensor], Tensor] | None
    act_first: bool
    drop: float
    training: bool

    def of(
        self,
        convolve: Callable[[Update | None], Tensor],
        dropout: Callable[[], tuple[int, Tensor | None]],
        normed: Callable[[], Tensor] | None = None,
    ) -> Tensor:
        """Returns the rows of a layer after all steps, fused where possible.

        Args:
            convolve: computes the convolution with an update in the same pass.
            dropout: returns the key of the dropout and the ids of the rows (None: row numbers).
            normed: computes the convolution with a batch normalisation and ReLU after it; by two
                modules where None.
        """
        relu = fuses_relu(self.act)
        if type(self.norm) is torch.nn.Identity and (relu or self.act is None):
            return convolve(Update(relu=relu, drop=self.drop))
        if relu and self.act_first:
            out = self.norm(convolve(Update(relu=True)))
        elif relu and fused_norm(self.norm) is not None:
            out = self.norm(convolve(None)) if normed is None else normed()
        else:
            out = self._by_modules(convolve(None))
        if not self.training or self.drop == 0.0:
            return out
        key, node = dropout()
        return ops.activate(out.clone(), drop=self.drop, key=key, node=node)

    def _by_modules(self, x: Tensor) -> Tensor:
        """Applies normalisation and activation, each as a module."""
        steps: list[Callable[[Tensor], Tensor]] = [self.norm] if self.act is None else [self.norm, self.act]
        for step in reversed(steps) if self.act_first else steps:
            x = step(x)
        return x
