"""Norms, activations and perceptrons of PyG and torch, computed by native operators."""

from __future__ import annotations

from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.dense.linear import is_uninitialized_parameter
from torch_geometric.utils._trim_to_layer import TrimToLayer

from pyg_batchgnn import nn, ops
from pyg_batchgnn.port.inputs import Accelerated, is_plain, is_symbolic, is_traced, traced


class AcceleratedBatchNorm1d(Accelerated, nn.BatchNorm):
    """A ``torch.nn.BatchNorm1d`` that `accelerate` made native."""

    stands_for = torch.nn.BatchNorm1d
    relu = False

    def forward(self, input: Tensor) -> Tensor:
        """Returns what torch's module does."""
        if is_symbolic(input):
            return traced(self, (input,))
        dtype = None if self.weight is None else self.weight.dtype
        alone = self.training and input.size(0) < 2  # torch raises an error
        frozen = self.running_mean is not None and not self.track_running_stats  # not what it was made with
        if alone or frozen or is_traced() or not is_plain(input, dtype):
            return torch.nn.BatchNorm1d.forward(self, input)
        return nn.BatchNorm.forward(self, input)

    def extra_repr(self) -> str:
        return torch.nn.BatchNorm1d.extra_repr(self)

    def takes_row_statistics(self) -> bool:
        """Returns whether the result for a row depends on the other rows."""
        return self.training or self.running_mean is None


class AcceleratedReLU(Accelerated, nn.ReLU):
    """A ``torch.nn.ReLU`` that `accelerate` made native."""

    stands_for = torch.nn.ReLU

    def forward(self, input: Tensor) -> Tensor:
        """Returns what torch's module does."""
        if is_symbolic(input):
            return traced(self, (input,))
        if is_traced() or not is_plain(input):
            return torch.nn.ReLU.forward(self, input)
        return nn.ReLU.forward(self, input)


class AcceleratedDropout(Accelerated, nn.Dropout):
    """A ``torch.nn.Dropout`` that `accelerate` made native."""

    stands_for = torch.nn.Dropout

    def forward(self, input: Tensor, key: int | None = None, node: Tensor | None = None) -> Tensor:
        """Returns what torch's module does, with the same law."""
        if is_symbolic(input):
            return traced(self, (input,))
        if is_traced() or not is_plain(input) or not is_probability(self.p):
            return torch.nn.Dropout.forward(self, input)
        return nn.Dropout.forward(self, input, key, node)


class AcceleratedTrim(Accelerated, TrimToLayer):
    """The step of PyG's models that leaves out rows and edges, which ``torch.fx`` takes as one."""

    stands_for = TrimToLayer

    def forward(self, *given: Any) -> Any:
        """Returns what PyG's module does."""
        return traced(self, given) if is_symbolic(*given) else super().forward(*given)


class AcceleratedMLP(Accelerated, torch_geometric.nn.MLP):
    """PyG's `MLP`, with the products of the package, if it has ReLU and no norms."""

    stands_for = torch_geometric.nn.MLP

    def forward(self, x: Tensor, *arguments: Any, **options: Any) -> Any:
        """Returns what PyG's module does."""
        simple = not (arguments or options) and self._is_simple()
        if not simple or not is_plain(x, self.lins[0].weight.dtype):
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
            and len(self.norms) == len(self.lins) - (1 if self.plain_last else 0)
            and all(type(lin) is torch_geometric.nn.Linear for lin in self.lins)
            and all(lin.bias is None or nn.fits_bias(lin) for lin in self.lins)
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
