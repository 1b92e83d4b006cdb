"""The check of the input of a layer."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.nn.rows import RowView


def check_input(x: Tensor | RowView, columns: int, dtype: torch.dtype, name: str = "x") -> None:
    """Raises unless a layer that computes in ``dtype`` can read ``x`` and its number of columns."""
    if len(x.shape) != 2 or x.shape[1] != columns:
        raise ValueError(f"{name} must be [rows, {columns}], got {list(x.shape)}")
    if not x.dtype.is_floating_point or (x.dtype == torch.float64 and dtype != torch.float64):
        raise TypeError(
            f"{name} is {x.dtype}, but the layer computes in {dtype}; convert it with .to({dtype})"
        )
