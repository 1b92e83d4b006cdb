"""Operators of embedding tables: initial rows, reading rows of two tables, updating rows.

All arrays but gradients come from the plans of steps, and are not checked again.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from pyg_batchgnn.ops.checks import check_dense
from pyg_batchgnn.ops.library import kernels, thread_count, to_signed
from pyg_batchgnn.ops.memory import empty

#: The element types that rows may have.
ROW_DTYPES = (torch.float32, torch.float64)


class RowRule(enum.IntEnum):
    """The update rule of an optimizer, by the number that the kernel takes."""

    SGD = 0
    ADAGRAD = 1
    ADAM = 2


@dataclass(frozen=True)
class RowStep:
    """The parameters of one step of an optimizer."""

    rule: RowRule
    rate: float  # the learning rate, corrections of the bias included
    eps: float = 0.0  # is added to the root of the sum or average of squares; of Adagrad and Adam
    # first, second: of Adam, the shares of the new gradient and of its square in the averages.
    first: float = 0.0
    second: float = 0.0


@dataclass(frozen=True, eq=False)
class RowTable:
    """A rank's rows, with the optimizer's state for each."""

    weight: Tensor  # [n, F] float32 or float64
    # Of the rule, [n, F] each: Adagrad's sum of squares; Adam's averages of gradients and squares.
    state: Sequence[Tensor] = ()
    frozen: Tensor | None = None  # [n] bool, the rows that stay as they are; None if there are none


@dataclass(frozen=True, eq=False)
class RowChanges:
    """The rows that a step changes."""

    row: Tensor  # [t] int64, the rows, ascending, each once
    ptr: Tensor  # [t + 1] int64, where the sources of each row begin
    # [e] int64, the gradients of each row in the order in which they are added: i for node i of
    # this rank's minibatch, ~i for row i of those that came from other ranks.
    source: Tensor


@dataclass(frozen=True, eq=False)
class RowGradients:
    """The gradients of a step."""

    near: Tensor  # [N, F], of this rank's minibatch; ignored where the share is 0, as those below
    # By rank, [m_r, F] from other ranks; none from this rank. Ignored where the share is 0.
    far: Sequence[Tensor]
    counts: Sequence[int]  # by rank, m_r
    share: Sequence[float]  # by rank, the factor of its gradients; 0 leaves them out
    rank: int


def fill_uniform(rows: Tensor, node: Tensor, key: int, bound: float) -> None:
    """Fills rows [n, F] float32 or float64 with numbers in [-bound, bound), each a function of
    (key, node, column). ``node``: [n] int64, original ids."""
    increment_version(rows)
    kernels.fill_uniform_(rows, node, to_signed(key), bound, thread_count())


def gather_either(near: Tensor, far: Tensor, source: Tensor) -> Tensor:
    """Returns rows [N, F] from two tables of one dtype, float32 or float64. ``source``: [N] int64,
    i for row i of ``near`` and ~i for row i of ``far``."""
    out = empty((source.numel(), near.size(1)), near.dtype)
    kernels.gather_either(near.detach(), far.detach(), source, out, thread_count())
    return out


def update_rows(table: RowTable, changes: RowChanges, gradients: RowGradients, step: RowStep) -> None:
    """Updates rows and their state, bitwise identical on any number of threads. A row without
    gradients (all shares 0) stays."""
    weight, near = table.weight, gradients.near
    check_dense("gradients", near)
    if near.dim() != 2 or not near.is_contiguous():
        raise ValueError(f"gradients must be a contiguous matrix, got shape {list(near.shape)}")
    (own, dtype), (columns, wanted) = ((one.size(1), one.dtype) for one in (near, weight))
    if (own, dtype) != (columns, wanted):
        raise ValueError(f"gradients have rows of {own} {dtype}, the table has {columns} {wanted}")
    first, second = [*table.state, *[weight] * 2][:2]  # unused ones are any tensor
    increment_version((weight, *table.state))
    kernels.update_rows_(
        *(weight, first, second, None if table.frozen is None else table.frozen.view(torch.uint8)),
        *(changes.row, changes.ptr, changes.source, near.detach(), list(gradients.far)),
        torch.tensor([0, *gradients.counts]).cumsum(0),
        torch.tensor(gradients.share, dtype=torch.float64),
        *(gradients.rank, int(step.rule)),
        torch.tensor([step.rate, step.eps, step.first, step.second], dtype=torch.float64),
        thread_count(),
    )
