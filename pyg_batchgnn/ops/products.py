"""The choice of the matrix products of `ops.linear`, and their computation by torch.

The kernels of the package are the default. The products of torch serve processors that have matrix
units (AMX) or vector instructions that the kernels do not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from pyg_batchgnn.ops.activation import activate

ProductsName = Literal["native", "torch"]

#: The rows of one product of torch. The number is fixed, so the order of sums depends on nothing
#: else.
BLOCK_ROWS = 8192

_current: ProductsName = "native"


def current_products() -> ProductsName:
    """Returns the products that `ops.linear` uses now."""
    return _current


def set_products(name: ProductsName) -> ProductsName:
    """Sets the products that `ops.linear` uses in this process, and returns the former ones."""
    global _current
    if name not in get_args(ProductsName):
        raise ValueError(f"matrix products are 'native' or 'torch', not {name!r}")
    before, _current = _current, name
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
    threads: int,
) -> Tensor:
    """Computes `ops.linear` from checked arguments with torch, in blocks of `BLOCK_ROWS` rows."""
    with torch.autocast("cpu", enabled=False):
        cast = [weight.to(dtype) for weight in weights]
        pieces = [_pieces(table, row, num_rows) for table, row in zip(tables, rows, strict=True)]
        blocks = [_block(block, cast, groups) for block in zip(*pieces, strict=True)]
        y = torch.cat(blocks) if len(blocks) > 1 else blocks[0]
        if bias is not None:
            y = y + bias.to(dtype)
    if not relu and drop == 0:
        return y
    return activate(y, relu=relu, drop=drop, key=key, node=node, threads=threads)


def _pieces(table: Tensor, row: Tensor | None, num_rows: int) -> Sequence[Tensor]:
    if row is None:
        return table[:num_rows].split(BLOCK_ROWS)
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
