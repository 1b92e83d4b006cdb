"""In which type a layer computes."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.nn.rows import RowView


def compute_dtype(weight: Tensor) -> torch.dtype:
    """bfloat16 under ``torch.autocast("cpu", torch.bfloat16)``, else the type of the weights.

    Raises:
        TypeError: autocast to float16, or weights of a type that layers do not compute in.
    """
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        if dtype != torch.bfloat16:
            raise TypeError(
                f"under autocast layers compute in bfloat16, not {dtype}; give it dtype=torch.bfloat16"
            )
        if weight.dtype == torch.float64:
            return torch.float64  # as torch's own autocast leaves float64 alone
        return dtype
    if weight.dtype not in (torch.float32, torch.float64, torch.bfloat16):
        raise TypeError(f"weights are {weight.dtype}; layers compute in float32, float64 or bfloat16")
    return weight.dtype


def check_input(x: Tensor | RowView, columns: int, dtype: torch.dtype, name: str = "x") -> None:
    """Raises unless ``x`` has ``columns`` columns of a type that a layer computing in ``dtype`` reads."""
    if len(x.shape) != 2 or x.shape[1] != columns:
        raise ValueError(f"{name} must be [rows, {columns}], got {list(x.shape)}")
    if not x.dtype.is_floating_point or (x.dtype == torch.float64 and dtype != torch.float64):
        raise TypeError(
            f"{name} is {x.dtype}, but the layer computes in {dtype}; convert it with .to({dtype})"
        )
