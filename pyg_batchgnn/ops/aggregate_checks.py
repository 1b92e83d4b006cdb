"""The checks of the arguments of `aggregate` and of operators like it."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.ops.checks import check_dense, check_ids, check_indptr, check_vector

REDUCTIONS = ("sum", "mean", "max")
#: The dtypes of stored rows. Results are never float16.
FLOATS = (torch.float32, torch.float64, torch.bfloat16)
TABLES = (*FLOATS, torch.float16)


def check_graph(
    x: Tensor, indptr: Tensor, indices: Tensor, row: Tensor | None, reduce: str, dtype: torch.dtype
) -> None:
    """Raises unless `aggregate` can read these rows along these edges."""
    if reduce not in REDUCTIONS:
        raise ValueError(f"reduce must be one of {', '.join(REDUCTIONS)}, got {reduce!r}")
    check_dense("x", x)
    if x.dim() != 2:
        raise ValueError(f"x must be [rows, columns], got {list(x.shape)}")
    if x.dtype not in TABLES:
        raise TypeError(f"x must be of a floating type, got {x.dtype}; convert it with .float()")
    if dtype not in FLOATS:
        raise TypeError(f"results are float32, float64 or bfloat16, not {dtype}")
    if x.dtype == torch.float64 and dtype != torch.float64:
        raise TypeError(f"x is float64 and the result {dtype}; convert x with .to({dtype})")
    check_vector("indices", indices)
    check_indptr("indptr", indptr, indices.numel())
    check_ids("indices", indices, x.size(0) if row is None else row.numel(), "sources")
    if row is not None:
        check_ids("row", row, x.size(0), "rows of x")
        if x.requires_grad and torch.is_grad_enabled():
            raise ValueError("rows that are read through row get no gradient; gather them first: x[row]")


def rows_like(name: str, rows: Tensor, x: Tensor) -> Tensor:
    """Returns a matrix as wide as x and of its dtype, with contiguous columns."""
    check_dense(name, rows)
    if rows.dim() != 2 or rows.size(1) != x.size(1) or rows.dtype != x.dtype:
        raise ValueError(
            f"{name} must be like x, [M, {x.size(1)}] of {x.dtype}, got {list(rows.shape)} of {rows.dtype}"
        )
    return rows if rows.stride(-1) == 1 else rows.contiguous()


def check_scales(scales: dict[str, Tensor | None], reduce: str, self_input: Tensor | None) -> None:
    """Raises unless the factors go together with the reduction and with each other."""
    given = [name for name, scale in scales.items() if scale is not None]
    if reduce == "max" and (given or self_input is not None):
        raise ValueError(f"a maximum takes no weights, got {', '.join(given) or 'self_input'}")
    self_scale = scales["self_scale"]
    if self_input is not None and self_scale is not None and self_scale.requires_grad:
        raise ValueError("self_scale gets no gradient together with self_input; scale self_input beforehand")
    for name in ("source_scale", "target_scale"):
        scale = scales[name]
        if scale is not None and scale.requires_grad and torch.is_grad_enabled():
            raise ValueError(f"{name} gets no gradient; give its product with edge_weight as edge_weight")


def check_size(name: str, values: Tensor | None, least: int) -> None:
    """Raises unless a factor is left out or is a vector of ``least`` entries or more."""
    if values is None:
        return
    check_dense(name, values)
    if values.dim() != 1 or values.numel() < least:
        raise ValueError(f"{name} must be a vector of {least} entries or more, got {list(values.shape)}")
