"""Dense layers: a sum of matrix products with bias, ReLU and dropout in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, get_args

import torch
from torch import Tensor

from pyg_batchgnn.ops.checks import (
    FLOATS,
    TABLES,
    check_drop,
    check_ids,
    check_nodes,
    check_on_cpu,
    dropout_scale,
)
from pyg_batchgnn.ops.library import fake, gradient, kernels, thread_count
from pyg_batchgnn.ops.norm import activate
from pyg_batchgnn.ops.quantized import stored


class RowsOfTable(Protocol):
    """Rows of a table: row i is ``table[row[i]]``; without a gradient."""

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
) -> Tensor:
    """Computes ``dropout(relu(sum(x @ w.t() for x, w in zip(inputs, weights)) + bias))`` in one
    pass, bitwise identical on any number of threads, as are its gradients.

    Args:
        inputs: [>= num_rows, groups * K] tensors, or views (`RowsOfTable`) of rows of a table. They
            are float32, float16 or bfloat16, or float64 if the weights are. Rows of a
            `QuantizedTensor` are decoded in blocks while they are multiplied. The first num_rows
            rows are used. K may differ between inputs.
        weights: [O, K] for each input, all of one dtype: ``out_dtype`` or float32. With groups,
            columns [g * O / groups, (g + 1) * O / groups) of the result are computed from columns
            [g * K, (g + 1) * K) of the inputs.
        bias: [O] of the dtype of the weights.
        num_rows: the number of rows of the result; None for all rows of the first input.
        groups: the number of independent products side by side.
        drop: the probability of dropping an element, below 1. Kept elements are multiplied by
            `dropout_scale`.
        key: the key of dropout (`dropout_key`).
        node: [num_rows] int64, the ids of the rows for dropout; None for row numbers.
        out_dtype: float32, bfloat16 or float64; None for `compute_dtype` of the weights.
        after_relu: True if the inputs are results of a ReLU. The gradients of their zeros, which
            the ReLU ignores, may then be 0, which is less work.

    Returns:
        [num_rows, O] of ``out_dtype``, with gradients for weights, bias and the inputs that are
            tensors. Gradients may skip products with an exact 0 in an input or in the gradient of
            the output, even if the other factor is not finite.
    """
    if not inputs or len(inputs) != len(weights):
        raise ValueError(f"got {len(inputs)} inputs and {len(weights)} weights; give one weight per input")
    tables = [x if isinstance(x, Tensor) else x.table for x in inputs]
    rows = [None if isinstance(x, Tensor) else x.row for x in inputs]
    if num_rows is None:
        num_rows = (tables[0] if rows[0] is None else rows[0]).size(0)
    dtype = out_dtype or compute_dtype(weights[0])
    check_weights(weights, bias, dtype, groups)
    checked = [
        checked_input(table, row, weight, num_rows, groups, dtype)
        for table, row, weight in zip(tables, rows, weights, strict=True)
    ]
    check_drop(drop)
    check_nodes(node, num_rows)
    arguments = (num_rows, groups, dtype, relu, drop, key, node)
    if current_products() == "torch":
        return linear_by_torch(checked, rows, weights, bias, *arguments)
    own = [weight.contiguous() for weight in weights]
    read = [stored(table) for table in checked]
    given = [table for table, _ in read], rows, [decoding for _, decoding in read]
    bias = None if bias is None else bias.contiguous()
    y, _ = kernels.linear(*given, own, bias, *arguments, after_relu, thread_count())
    return y


def check_weights(weights: Sequence[Tensor], bias: Tensor | None, dtype: torch.dtype, groups: int) -> None:
    if dtype not in FLOATS:
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


def checked_input(
    table: Tensor, row: Tensor | None, weight: Tensor, num_rows: int, groups: int, dtype: torch.dtype
) -> Tensor:
    check_on_cpu("inputs", table)
    if table.dim() != 2:
        raise ValueError(f"inputs must be [N, K], got {list(table.shape)}")
    if table.size(1) != groups * weight.size(1):
        raise ValueError(
            f"an input has {table.size(1)} columns, but its weight {list(weight.shape)} and {groups} groups "
            f"need {groups * weight.size(1)}"
        )
    if table.dtype not in TABLES or (table.dtype is torch.float64) > (dtype is torch.float64):
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


def compute_dtype(weight: Tensor) -> torch.dtype:
    """Returns bfloat16 under ``torch.autocast("cpu", torch.bfloat16)``, else the weight's dtype,
    also under autocast of float16, which is less exact."""
    # as torch's own autocast leaves float64 alone
    halved = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") is torch.bfloat16
    if halved and weight.dtype is not torch.float64:
        return torch.bfloat16
    if weight.dtype not in FLOATS:
        raise TypeError(
            f"weights are {weight.dtype}; layers compute in float32, bfloat16 or float64, convert them"
        )
    return weight.dtype


# Products #########################################################################################

# The kernels of the package are the default. The products of torch serve processors that have
# matrix units (AMX) or vector instructions that the kernels do not know.


ProductsName = Literal["native", "torch"]

#: The rows of one product of torch, fixed, so that the order of sums depends on nothing else.
BLOCK_ROWS = 8192

_current: ProductsName = "native"


def current_products() -> ProductsName:
    """Returns the matrix products of `ops.linear` in this process."""
    return _current


def set_products(name: ProductsName) -> ProductsName:
    """Sets the matrix products of `ops.linear` in this process; returns the former choice."""
    global _current
    if name not in get_args(ProductsName):
        raise ValueError(f"matrix products are 'native' or 'torch', not {name!r}")
    before, _current = _current, name
    return before


# The levels of the package's products of bfloat16, which round differently.

BFloat16Level = Literal["widened", "pairs", "tiles"]

#: From the lowest on, as `Bfloat16Level` in csrc/kernels/simd/level.h numbers them.
_LEVELS: tuple[BFloat16Level, ...] = get_args(BFloat16Level)


def bfloat16_levels() -> tuple[BFloat16Level, ...]:
    """Returns the kinds of bfloat16 products that this processor has, the lowest first: "widened"
    to float32 (always), "pairs" by the instruction vdpbf16ps, "tiles" by Intel's matrix unit
    (AMX)."""
    return _LEVELS[: kernels.most_bfloat16_level() + 1]


def bfloat16_level() -> BFloat16Level:
    """Returns the kind of bfloat16 products in use: the one set, else PYG_BATCHGNN_BFLOAT16
    (widened, pairs or tiles), else by processor "tiles" if there is a matrix unit and the system
    allows it, "widened" on other Intel processors, "pairs" on others that have them."""
    return _LEVELS[kernels.bfloat16_level()]


def set_bfloat16_level(name: BFloat16Level) -> BFloat16Level:
    """Sets the kind of bfloat16 products in this process; returns the former one."""
    if name not in bfloat16_levels():
        known = ", ".join(map(repr, bfloat16_levels()))
        raise ValueError(f"bfloat16 products are {known} on this processor, not {name!r}")
    before = bfloat16_level()
    kernels.set_bfloat16_level(_LEVELS.index(name))
    return before


def linear_by_torch(
    tables: Sequence[Tensor],
    rows: Sequence[Tensor | None],
    weights: Sequence[Tensor],
    bias: Tensor | None,
    num_rows: int,
    groups: int,
    dtype: torch.dtype,
    relu: bool,
    drop: float,
    key: int,
    node: Tensor | None,
) -> Tensor:
    """Computes `linear` from checked arguments with torch, in blocks of `BLOCK_ROWS` rows."""
    with torch.autocast("cpu", enabled=False):
        cast = [weight.to(dtype) for weight in weights]
        pieces = [_pieces(table, row, num_rows) for table, row in zip(tables, rows, strict=True)]
        blocks = [_block(block, cast, groups) for block in zip(*pieces, strict=True)]
        y = torch.cat(blocks) if len(blocks) > 1 else blocks[0]
        if bias is not None:
            y = y + bias.to(dtype)
    if not relu and drop == 0:
        return y
    return activate(y, relu=relu, drop=drop, key=key, node=node)


def _pieces(table: Tensor, row: Tensor | None, num_rows: int) -> Sequence[Tensor]:
    if row is None:
        return [table[at : min(num_rows, at + BLOCK_ROWS)] for at in range(0, max(1, num_rows), BLOCK_ROWS)]
    return [table[part.long()] for part in row[:num_rows].split(BLOCK_ROWS)]


def _block(inputs: Sequence[Tensor], weights: Sequence[Tensor], groups: int) -> Tensor:
    dtype = weights[0].dtype
    total: Tensor | None = None
    for x, weight in zip(inputs, weights, strict=True):
        # [groups, rows, K] x [groups, K, O / groups]
        left = x.to(dtype).unflatten(1, (groups, weight.size(1))).transpose(0, 1)
        right = weight.unflatten(0, (groups, weight.size(0) // groups)).transpose(1, 2)
        product = left @ right
        total = product if total is None else total + product
    assert total is not None
    return total.transpose(0, 1).flatten(1)


# Gradients and shapes #############################################################################


@fake("linear")
def _fake_linear(
    inputs: list[Tensor],
    _rows: list[Tensor | None],
    _decodings: list[Tensor | None],
    weights: list[Tensor],
    _bias: Tensor | None,
    num_rows: int,
    _groups: int,
    out_dtype: torch.dtype,
    relu: bool,
    drop: float,
    *_: Any,
) -> tuple[Tensor, Tensor]:
    outputs = weights[0].size(0)
    mask = (num_rows, (outputs + 7) // 8) if relu or drop > 0 else (0, 0)
    y = inputs[0].new_empty((num_rows, outputs), dtype=out_dtype)
    return y, inputs[0].new_empty(mask, dtype=torch.uint8)


@fake("linear_grads")
def _fake_grads(
    _grad: Tensor,
    _mask: Tensor,
    _scale: float,
    inputs: list[Tensor],
    _rows: list[Any],
    _decodings: list[Any],
    weights: list[Tensor],
    *rest: Any,
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    need_input, need_weight, need_bias, _threads = rest[2:]
    d_inputs = [
        x.new_empty((x.size(0) if need else 0, x.size(1))) for x, need in zip(inputs, need_input, strict=True)
    ]
    d_weights = [weight.new_empty(weight.shape) for weight in weights] if need_weight else []
    return d_inputs, d_weights, weights[0].new_empty((weights[0].size(0) if need_bias else 0,))


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    tables, rows, decodings, weights, _, _, groups, _, _, drop, _, _, after_relu, threads = inputs
    mask = output[1]
    ctx.mark_non_differentiable(mask)
    ctx.set_materialize_grads(False)
    given = (one for one in (*rows, *decodings) if one is not None)
    ctx.save_for_backward(mask, *tables, *weights, *given)
    ctx.placed = [row is not None for row in rows]
    ctx.coded = [decoding is not None for decoding in decodings]
    ctx.groups, ctx.after_relu, ctx.threads = groups, after_relu, threads
    ctx.scale = dropout_scale(drop) if drop > 0 else 1.0


@gradient("linear", _save)
def _differentiate(ctx: Any, grad: Tensor | None, _mask: None) -> tuple[Any, ...]:
    count = len(ctx.placed)
    nothing: list[Tensor | None] = [None] * count
    # Without a missing entry torch treats a list of optional tensors as a list of tensors.
    for_rows = nothing if all(ctx.placed) else None
    for_decodings = nothing if all(ctx.coded) else None
    if grad is None:
        return (nothing, for_rows, for_decodings, nothing, *[None] * 10)
    mask, *saved = ctx.saved_tensors
    tables, weights, rest = saved[:count], saved[count : 2 * count], iter(saved[2 * count :])
    need_input, _, _, need_weight, need_bias, *_ = ctx.needs_input_grad
    need_input = list(need_input)
    rows = [next(rest) if placed else None for placed in ctx.placed]
    for table, row in zip(tables, rows, strict=True):
        if type(row) is Tensor:  # neither absent nor traced; ``.data`` and NumPy write to it unseen
            check_ids("row", row, table.size(0), "rows of the table")
    # The kernel sums the gradient of the bias while it computes those of the weights.
    with_weights = any(need_weight) or bool(need_bias)
    decodings = [next(rest) if coded else None for coded in ctx.coded]
    d_inputs, d_weights, d_bias = kernels.linear_grads(
        *(grad.contiguous(), mask, ctx.scale, tables, rows, decodings, weights, ctx.groups),
        *(ctx.after_relu, need_input, with_weights, bool(need_bias), ctx.threads),
    )
    return (
        [d if need else None for d, need in zip(d_inputs, need_input, strict=True)],
        for_rows,
        for_decodings,
        d_weights if any(need_weight) else nothing,
        d_bias if need_bias else None,
        *[None] * 9,
    )
