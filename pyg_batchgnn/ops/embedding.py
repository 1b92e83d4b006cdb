"""Operators of embedding tables: initial rows, reading rows of two tables, updating rows."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from pyg_batchgnn.ops.checks import check_dense, check_ids, check_indptr, check_vector, extent
from pyg_batchgnn.ops.library import kernels, thread_count, to_signed
from pyg_batchgnn.ops.memory import empty

#: The element types that rows may have.
ROW_DTYPES = (torch.float32, torch.float64)


class RowRule(enum.IntEnum):
    SGD = 0
    ADAGRAD = 1
    ADAM = 2


@dataclass(frozen=True)
class RowStep:
    """The numbers of one step of an optimizer.

    Attributes:
        rate: the learning rate, corrections of the bias included.
        eps: is added to the root of the sum or average of squares; of Adagrad and Adam.
        first, second: of Adam, the shares of the new gradient and of its square in the averages.
    """

    rule: RowRule
    rate: float
    eps: float = 0.0
    first: float = 0.0
    second: float = 0.0


@dataclass(frozen=True, eq=False)
class RowTable:
    """The rows of a rank, and the state of the optimizer that lies with each row.

    Attributes:
        weight: [n, F] float32 or float64.
        state: what the rule keeps, [n, F] each: nothing for SGD, the sum of squares for Adagrad,
            the averages of gradients and of squares for Adam.
        frozen: [n] bool, the rows that stay as they are; None if there are none.
    """

    weight: Tensor
    state: Sequence[Tensor] = ()
    frozen: Tensor | None = None


@dataclass(frozen=True, eq=False)
class RowChanges:
    """The rows that a step changes.

    Attributes:
        row: [t] int64, the rows, ascending, each once.
        ptr: [t + 1] int64, where the sources of each row begin.
        source: [e] int64, the gradients of each row in the order in which they are added. A source
            i >= 0 is the gradient of node i of this rank's minibatch, and ~i is row i of those that
            came from other ranks.
    """

    row: Tensor
    ptr: Tensor
    source: Tensor


@dataclass(frozen=True, eq=False)
class RowGradients:
    """The gradients of a step.

    Attributes:
        near: [N, F], of this rank's minibatch; ignored where the share is 0, as those below.
        far: by rank, [m_r, F] from other ranks; none from this rank. Ignored where the share is 0.
        counts: by rank, m_r.
        share: by rank, the factor of its gradients; 0 leaves them out.
    """

    near: Tensor
    far: Sequence[Tensor]
    counts: Sequence[int]
    share: Sequence[float]
    rank: int


def fill_uniform(rows: Tensor, node: Tensor, key: int, bound: float) -> None:
    """Writes keyed numbers in [-bound, bound), a function of (key, node, column) each.

    Args:
        rows: [n, F] float32 or float64, written to.
        node: [n] int64, the original ids of the nodes.
    """
    _check_rows("rows", rows)
    check_vector("node", node, (torch.int64,))
    if len(rows) != node.numel():
        raise ValueError(f"{node.numel()} nodes cannot fill {len(rows)} rows; give one node per row")
    increment_version(rows)
    kernels.fill_uniform_(rows, node, to_signed(key), bound, thread_count())


def gather_either(near: Tensor, far: Tensor, source: Tensor) -> Tensor:
    """Returns rows of two tables, in memory that is reused.

    Args:
        near: [n, F] float32 or float64.
        far: [m, F] of the same type.
        source: [N] int64, i for row i of ``near`` and ~i for row i of ``far``.

    Returns:
        [N, F].
    """
    _check_rows("near", near)
    _check_like("far", far, near)
    _check_sources(source, len(near), len(far))
    out = empty((source.numel(), near.size(1)), near.dtype)
    kernels.gather_either(near.detach(), far.detach(), source, out, thread_count())
    return out


def update_rows(table: RowTable, changes: RowChanges, gradients: RowGradients, step: RowStep) -> None:
    """Updates rows and the state that lies with them. The same bits on any number of threads.

    A row stays as it is if all its gradients are left out.
    """
    weight, near = table.weight, gradients.near
    _check_rows("weight", weight)
    _check_like("near", near, weight)
    if len(table.state) != step.rule:
        raise ValueError(
            f"{step.rule.name} keeps {int(step.rule)} numbers for each weight, got {len(table.state)} tables"
        )
    for name, rows in zip(("first", "second"), table.state, strict=False):
        _check_like(name, rows, weight)
        _check_length(name, rows, len(weight))
    if table.frozen is not None:
        check_vector("frozen", table.frozen, (torch.bool,))
        _check_length("frozen", table.frozen, len(weight))
    _check_gradients(gradients)
    check_ids("row", changes.row, len(weight), "rows of the table")
    check_vector("row", changes.row, (torch.int64,))
    check_indptr("ptr", changes.ptr, changes.source.numel())
    _check_length("ptr", changes.ptr, changes.row.numel() + 1)
    near_rows = len(near) if gradients.share[gradients.rank] else None
    _check_sources(changes.source, near_rows, sum(gradients.counts))
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


def _check_gradients(gradients: RowGradients) -> None:
    ranks = len(gradients.counts)
    if len(gradients.far) != ranks or len(gradients.share) != ranks or not 0 <= gradients.rank < ranks:
        raise ValueError(
            f"gradients of {len(gradients.far)} ranks came with {ranks} counts and {len(gradients.share)} "
            f"shares for rank {gradients.rank}; give one of each per rank"
        )
    for rank, (rows, count) in enumerate(zip(gradients.far, gradients.counts, strict=True)):
        _check_like(f"far[{rank}]", rows, gradients.near)
        if count < 0 or (gradients.share[rank] and rank != gradients.rank):
            _check_length(f"far[{rank}]", rows, count)


def _check_sources(source: Tensor, near: int | None, far: int) -> None:
    """Checks the names of rows. ``near``: the rows here; None if they are not read."""
    check_vector("source", source, (torch.int64,))
    low, high = extent(source)
    if source.numel() and (low < -far or (near is not None and high >= near)):
        raise IndexError(f"source goes from {low} to {high}, but there are {near} rows here and {far} others")


def _check_rows(name: str, rows: Tensor) -> None:
    check_dense(name, rows)
    if rows.dtype not in ROW_DTYPES:
        raise TypeError(f"{name} must be float32 or float64, got {rows.dtype}; convert it with .float()")
    if rows.dim() != 2 or not rows.is_contiguous():
        raise ValueError(f"{name} must be a contiguous matrix, got shape {list(rows.shape)}")


def _check_like(name: str, rows: Tensor, like: Tensor) -> None:
    _check_rows(name, rows)
    if rows.dtype != like.dtype or rows.size(1) != like.size(1):
        raise ValueError(
            f"{name} has rows of {rows.size(1)} {rows.dtype}, the table has {like.size(1)} {like.dtype}"
        )


def _check_length(name: str, rows: Tensor, count: int) -> None:
    if len(rows) != count:
        raise ValueError(f"{name} has {len(rows)} rows, expected {count}")
