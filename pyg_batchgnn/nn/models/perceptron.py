"""The two-layer perceptron of GIN, with the ``state_dict`` of PyG's `MLP`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.nn.lazy import linear_of
from pyg_batchgnn.nn.linear import Linear, is_watched
from pyg_batchgnn.nn.models.norms import fused_norm, native_norm
from pyg_batchgnn.nn.norm import BatchNorm, NormOnRead
from pyg_batchgnn.nn.rows import NormedRows
from pyg_batchgnn.nn.terms import RowProduct, Terms


class Perceptron(torch.nn.Module):
    """Two linear layers with normalisation and activation between them.

    Args:
        channels: the numbers of columns of the input, between the layers, and of the result.
        act: the activation; None has none.
        act_first: applies the activation before the normalisation, not after it.
        norm: the normalisation.
    """

    linear: Callable[[int, int], torch.nn.Linear] = torch.nn.Linear

    def __init__(
        self,
        channels: tuple[int, int, int],
        act: torch.nn.Module | None,
        act_first: bool,
        norm: torch.nn.Module,
    ) -> None:
        super().__init__()
        self.act = act
        self.act_first = act_first
        self.lins = torch.nn.ModuleList(type(self).linear(a, b) for a, b in pairwise(channels))
        self.norms = torch.nn.ModuleList([norm])

    def between(self, rows: Tensor) -> Tensor:
        """Applies normalisation and activation."""
        steps = [*self.norms] if self.act is None else [*self.norms, self.act]
        for step in reversed(steps) if self.act_first else steps:
            rows = step(rows)
        return rows

    def forward(self, input: Tensor) -> Tensor | NormedRows:
        """Returns [D, channels[2]] from [D, channels[0]]."""
        first, last = self.lins
        result: Tensor = last(self.between(first(input)))
        return result


class _Inner(NamedTuple):
    """The input of the second product.

    Attributes:
        rows: [D, channels[1]].
        hidden: the rows for a product that is normalised too, None if there is nothing to add.
        is_rectified: True if the rows are the result of a ReLU.
    """

    rows: Tensor
    hidden: ops.Hidden | None
    is_rectified: bool


class NativePerceptron(Perceptron):
    """A `Perceptron` whose products, normalisation and ReLU are computed together."""

    linear = staticmethod(linear_of)

    def __init__(
        self,
        channels: tuple[int, int, int],
        act: torch.nn.Module | None,
        act_first: bool,
        norm: torch.nn.Module,
    ) -> None:
        relu = type(act) is torch.nn.ReLU and not act_first
        super().__init__(channels, act, act_first, native_norm(norm, relu))

    def forward(self, input: Tensor, after: BatchNorm | NormOnRead | None = None) -> Tensor | NormedRows:
        """Returns [D, channels[2]] from [D, channels[0]], normalised by ``after``."""
        last = self.lins[1]
        assert isinstance(last, Linear)
        inner = self._inner(input, is_normed=after is not None)
        if after is None:
            result: Tensor = last.after_relu(inner.rows) if inner.is_rectified else last(inner.rows)
            return result
        return after.of_product(last, inner.rows, after_relu=inner.is_rectified, hidden=inner.hidden)

    def terms(self, input: Tensor) -> Terms:
        """Returns the terms of ``self(input)``."""
        last = self.lins[1]
        assert isinstance(last, Linear)
        inner = self._inner(input, is_normed=False)
        if is_watched(last):
            return Terms(values=last(inner.rows))
        product = RowProduct(inner.rows, last.weight, after_relu=inner.is_rectified)
        return Terms((product,), bias=last.bias)

    def _inner(self, input: Tensor, is_normed: bool) -> _Inner:
        """Computes the first product with normalisation and activation."""
        first, norm = self.lins[0], self.norms[0]
        assert isinstance(first, Linear)
        if type(self.act) is torch.nn.ReLU and not is_watched(self.act):
            inside = fused_norm(norm)
            if inside is not None and is_normed:
                return _Inner(*inside.hidden_of_product(first, input), is_rectified=True)
            if inside is not None:
                return _Inner(inside.of_product(first, input), None, is_rectified=True)
            if type(norm) is torch.nn.Identity:
                return _Inner(first.with_relu(input), None, is_rectified=True)
        return _Inner(self.between(first(input)), None, is_rectified=False)
