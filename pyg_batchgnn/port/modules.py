"""Norms, activations and perceptrons of PyG and torch, computed by native operators."""

from __future__ import annotations

from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from pyg_batchgnn import nn, ops
from pyg_batchgnn.port.inputs import is_plain, is_traced


class AcceleratedBatchNorm1d(nn.BatchNorm):
    """A ``torch.nn.BatchNorm1d`` that `accelerate` made native."""

    stands_for = torch.nn.BatchNorm1d
    relu = False

    def forward(self, input: Tensor) -> Tensor:
        """Returns what torch's module does."""
        dtype = None if self.weight is None else self.weight.dtype
        alone = self.training and input.size(0) < 2  # torch raises an error
        if alone or is_traced() or not is_plain(input, dtype):
            return torch.nn.BatchNorm1d.forward(self, input)
        return nn.BatchNorm.forward(self, input)

    def takes_row_statistics(self) -> bool:
        """Returns whether the result for a row depends on the other rows."""
        return self.training or self.running_mean is None


class AcceleratedReLU(nn.ReLU):
    """A ``torch.nn.ReLU`` that `accelerate` made native."""

    stands_for = torch.nn.ReLU

    def forward(self, input: Tensor) -> Tensor:
        """Returns what torch's module does."""
        if is_traced() or not is_plain(input):
            return torch.nn.ReLU.forward(self, input)
        return nn.ReLU.forward(self, input)


class AcceleratedDropout(nn.Dropout):
    """A ``torch.nn.Dropout`` that `accelerate` made native."""

    stands_for = torch.nn.Dropout

    def forward(self, input: Tensor, key: int | None = None, node: Tensor | None = None) -> Tensor:
        """Returns what torch's module does, with the same law."""
        if is_traced() or not is_plain(input) or not is_probability(self.p):
            return torch.nn.Dropout.forward(self, input)
        return nn.Dropout.forward(self, input, key, node)


class AcceleratedMLP(torch_geometric.nn.MLP):
    """PyG's `MLP`, with the products of the package, if it has ReLU and no norms."""

    stands_for = torch_geometric.nn.MLP

    def forward(self, x: Tensor, *arguments: Any, **options: Any) -> Any:
        """Returns what PyG's module does."""
        if arguments or options or not self._is_simple() or not is_plain(x, self.lins[0].weight.dtype):
            return super().forward(x, *arguments, **options)
        behind_relu = False
        for place, lin in enumerate(self.lins):
            if is_uninitialized_parameter(lin.weight):
                lin.initialize_parameters(lin, (x,))
            last = place == len(self.lins) - 1
            relu = not (last and self.plain_last)
            x = ops.linear([x], [lin.weight], lin.bias, relu=relu, after_relu=behind_relu)
            behind_relu = relu
        return x

    def _is_simple(self) -> bool:
        """Returns whether the module is products with ReLU between them, and nobody watches."""
        norms_and_activation = (*self.norms, self.act)
        return (
            type(self.act) is torch.nn.ReLU
            and all(type(norm) is torch.nn.Identity for norm in self.norms)
            and not (self.training and any(self.dropout))
            and not is_traced()
            and not any(map(nn.is_watched, norms_and_activation))
            and not any(map(_is_watched_linear, self.lins))
        )


def _is_watched_linear(lin: torch.nn.Module) -> bool:
    """Returns whether a linear layer of PyG has hooks, but for its own that finds its width."""
    return nn.is_watched(lin) and not is_uninitialized_parameter(lin.weight)


def is_probability(p: float) -> bool:
    """Returns whether the operators take ``p``; torch's dropout also takes 1."""
    try:
        ops.check_drop(p)
    except ValueError:
        return False
    return True
