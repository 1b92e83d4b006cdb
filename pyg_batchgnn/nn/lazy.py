"""Layers whose width is that of their first input."""

from __future__ import annotations

import torch
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from pyg_batchgnn.nn.inputs import Rows
from pyg_batchgnn.nn.linear import Linear


class LazyLinear(torch.nn.LazyLinear, Linear):
    """A `Linear` that takes its number of input columns from the first call.

    It is a `Linear` from then on.
    """

    cls_to_become = Linear


def linear_of(in_features: int, out_features: int) -> Linear:
    """Returns a new `Linear`; -1 columns of the input are those of the first call."""
    return LazyLinear(out_features) if in_features == -1 else Linear(in_features, out_features)


def set_width(linear: torch.nn.Module | None, rows: Rows | None) -> None:
    """Initialises a linear layer of PyG whose width was unknown, as PyG does at the first call.

    Args:
        linear: the layer; None does nothing, and so does a layer of known width.
        rows: its input; None does nothing.
    """
    if linear is not None and rows is not None and is_uninitialized_parameter(linear.weight):
        linear.initialize_parameters(linear, (rows,))  # type: ignore[operator]


def widest(module: torch.nn.Module) -> int:
    """Returns the largest number of columns of what the parameters of a module compute."""
    found = [1]
    for part in module.modules():
        for parameter in part.parameters(recurse=False):
            if not is_uninitialized_parameter(parameter):
                found += list(parameter.shape[:1])
            else:
                found += [getattr(part, "out_channels", getattr(part, "out_features", 1))]
    return max(found)
