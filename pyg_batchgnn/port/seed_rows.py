"""Outputs of all nodes of a batch whose gradient comes from the seed nodes alone.

Most scripts compute the output of every node of a batch and keep the rows of the seeds. The rows of
the seeds are computed with what the backward pass needs. The other rows are values only. If a
gradient of other rows arrives, the layers are computed once more for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import ops


def with_seed_rows(
    values: Tensor, seeds: Tensor, leaves: list[Tensor], again: Callable[[], Tensor], used: Callable[[], None]
) -> Tensor:
    """Puts the rows of the seeds, [S, C] with their gradient, above ``values``, [N, C] without one.
    If a gradient of other rows arrives, ``used`` is called, and ``again`` computes all rows
    again."""
    result: Tensor = _SeedRows.apply(values, seeds, again, used, *leaves)
    return result


def with_this_autocast(compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
    dtype, enabled = torch.get_autocast_dtype("cpu"), torch.is_autocast_enabled("cpu")

    def again() -> Tensor:
        with torch.autocast("cpu", dtype, enabled=enabled):
            return compute()

    return again


class _SeedRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, seeds: Tensor, again: Any, used: Any, *leaves: Tensor) -> Tensor:
        values[: seeds.size(0)] = seeds
        ctx.mark_dirty(values)
        ctx.count, ctx.again, ctx.used, ctx.leaves = seeds.size(0), again, used, leaves
        return values

    @staticmethod
    @ops.first_order
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        (grad,) = grads
        seeds, rest = grad[: ctx.count], grad[ctx.count :]
        nothing = (None,) * len(ctx.leaves)
        if not rest.any():
            return None, seeds, None, None, *nothing
        ctx.used()
        with torch.enable_grad():
            out = ctx.again()
        others = torch.cat([torch.zeros_like(seeds), rest])
        found = torch.autograd.grad(out, ctx.leaves, others, allow_unused=True)
        return None, seeds, None, None, *found
