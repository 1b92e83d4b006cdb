"""Dense layers: a sum of matrix products with bias, ReLU and dropout in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from pyg_batchgnn.ops import linear_autograd as linear_autograd  # registers
from pyg_batchgnn.ops.activation import check_drop
from pyg_batchgnn.ops.checks import check_ids, check_on_cpu, check_vector
from pyg_batchgnn.ops.library import kernels
from pyg_batchgnn.ops.precision import COMPUTE_DTYPES, compute_dtype
from pyg_batchgnn.ops.products import current_products, linear_by_torch

INPUT_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


class RowsOfTable(Protocol):
    """A view of rows of a table: row i is ``table[row[i]]``. A table takes no gradient."""

    @property
    def table(self) -> Tensor: ...

    @property
    def row(self) -> Tensor: ...


LinearInput = Tensor | RowsOfTable


def linear(
    inputs: Sequence[LinearInput],
    weights: Sequence[Tensor],
    bias: Tensor | None = None,
    *,
    num_rows: int | None = None,
    groups: int = 1,
    relu: bool = False,
    drop: float = 0.0,
    key: int = 0,
    node: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    after_relu: bool = False,
    threads: int | None = None,
) -> Tensor:
    """Computes ``dropout(relu(sum(x @ w.t() for x, w in zip(inputs, weights)) + bias))`` in one
    pass.

    The order of each sum does not depend on the number of threads, nor do the bits of the result
    and of its gradients.

    Args:
        inputs: [>= num_rows, groups * K] tensors, or views (`RowsOfTable`) of rows of a table. They
            are float32, float16 or bfloat16, or float64 if the weights are. The first num_rows rows
            are used. K may differ between inputs.
        weights: [O, K] for each input, all of one dtype: ``out_dtype`` or float32. With groups,
            columns [g * O / groups, (g + 1) * O / groups) of the result are computed from columns
            [g * K, (g + 1) * K) of the inputs.
        bias: [O] of the dtype of the weights.
        num_rows: the number of rows of the result; all rows of the first input where None.
        groups: the number of independent products side by side.
        relu: sets negative elements to zero.
        drop: the probability of dropping an element, below 1. Kept elements are multiplied by
            `dropout_scale`.
        key: the key of dropout (`dropout_key`).
        node: [num_rows] int64, the ids of the rows for dropout; row numbers where None.
        out_dtype: float32, bfloat16 or float64; `compute_dtype` of the weights where None.
        after_relu: the inputs are results of a ReLU. The ReLU passes on no gradient where its
            result is zero. The gradient of such an element may then be returned as zero, which is
            less work.
        threads: the largest number of threads; torch's own number where None.

    Returns:
        [num_rows, O] of ``out_dtype``, with gradients for weights, bias and the inputs that are
        tensors. Gradients may skip products of an exact 0 in an input or in the gradient of the
        output, even if the other factor is not finite.
    """
    if not inputs or len(inputs) != len(weights):
        raise ValueError(f"got {len(inputs)} inputs and {len(weights)} weights; give one weight per input")
    tables = [x if isinstance(x, Tensor) else x.table for x in inputs]
    rows = [None if isinstance(x, Tensor) else x.row for x in inputs]
    if num_rows is None:
        num_rows = (tables[0] if rows[0] is None else rows[0]).size(0)
    dtype = out_dtype or compute_dtype(weights[0])
    _check_weights(weights, bias, dtype, groups)
    checked = [
        _checked_input(table, row, weight, num_rows, groups, dtype)
        for table, row, weight in zip(tables, rows, weights, strict=True)
    ]
    check_drop(drop)
    if node is not None:
        check_vector("node", node, (torch.int64,))
        if node.numel() < num_rows:
            raise ValueError(f"node has {node.numel()} ids for {num_rows} rows")
    arguments = (num_rows, groups, dtype, relu, drop, key, node)
    threads = threads or torch.get_num_threads()
    if current_products() == "torch":
        return linear_by_torch(checked, rows, weights, bias, *arguments, threads)
    own = [weight.contiguous() for weight in weights]
    y, _ = kernels.linear(
        checked, rows, own, None if bias is None else bias.contiguous(), *arguments, after_relu, threads
    )
    return y


def _check_weights(weights: Sequence[Tensor], bias: Tensor | None, dtype: torch.dtype, groups: int) -> None:
    if dtype not in COMPUTE_DTYPES:
        raise TypeError(f"out_dtype must be float32, bfloat16 or float64, got {dtype}")
    if groups < 1:
        raise ValueError(f"groups must be positive, got {groups}")
    first = weights[0]
    for weight in weights:
        check_on_cpu("weights", weight)
        if weight.dim() != 2 or weight.size(0) != first.size(0):
            raise ValueError(f"weights must be [{first.size(0)}, K], got {list(weight.shape)}")
        if weight.dtype not in (dtype, torch.float32) or weight.dtype is not first.dtype:
            raise TypeError(
                f"weights must be {dtype} or float32, all alike, to compute in {dtype}; got {weight.dtype}"
            )
    if dtype is torch.float64 and first.dtype is not torch.float64:
        raise TypeError(
            f"float64 results need float64 weights, got {first.dtype}; call .double() on the layer"
        )
    if first.size(0) % groups:
        raise ValueError(f"{first.size(0)} outputs do not fall into {groups} equal groups")
    if bias is not None:
        check_on_cpu("bias", bias)
    if bias is not None and (bias.shape != first.shape[:1] or bias.dtype is not first.dtype):
        raise ValueError(
            f"bias must be [{first.size(0)}] of {first.dtype}, got {list(bias.shape)} of {bias.dtype}"
        )


def _checked_input(
    table: Tensor, row: Tensor | None, weight: Tensor, num_rows: int, groups: int, dtype: torch.dtype
) -> Tensor:
    """Returns the table, or a copy of it with contiguous rows."""
    check_on_cpu("inputs", table)
    if table.dim() != 2:
        raise ValueError(f"inputs must be [N, K], got {list(table.shape)}")
    if table.size(1) != groups * weight.size(1):
        raise ValueError(
            f"an input has {table.size(1)} columns, but its weight {list(weight.shape)} and {groups} groups "
            f"need {groups * weight.size(1)}"
        )
    if table.dtype not in INPUT_DTYPES or (table.dtype is torch.float64) > (dtype is torch.float64):
        raise TypeError(f"inputs of {table.dtype} cannot be multiplied in {dtype}; convert them")
    if table.requires_grad and table.dtype is torch.float16 and torch.is_grad_enabled():
        raise TypeError("float16 inputs take no gradient; use bfloat16 or float32")
    available = table.size(0)
    if row is not None:
        if table.requires_grad and torch.is_grad_enabled():
            raise ValueError("rows of a table take no gradient; gather them into a tensor first")
        available = row.numel()
        check_ids("row", row, table.size(0), "rows of the table")
    if not 0 <= num_rows <= available:
        raise ValueError(f"num_rows is {num_rows}, but an input has {available} rows")
    if table.stride(1) == 1 or table.size(1) <= 1:
        return table
    if row is not None:
        raise ValueError(
            f"the table's rows are not contiguous (strides {table.stride()}); call .contiguous()"
        )
    return table.contiguous()
