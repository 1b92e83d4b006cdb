"""The two exchanges of a step: rows go to the ranks that need them, gradients come back.

A message is a vector of the tables' element type: the rows of one table after the other. A message
of gradients begins with the weight of the sender and, for each table, whether gradients of it
follow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.embed.plan import StepPlan, TablePlan
from pyg_batchgnn.embed.table import EmbeddingTable
from pyg_batchgnn.ops import RowGradients, RowStep


def read_rows(tables: Sequence[EmbeddingTable], plan: StepPlan, comm: Communicator) -> list[Tensor]:
    """Reads the rows of a step's nodes. Collective, one round.

    Returns:
        By table, [N, F], one row per node of the minibatch.
    """
    ranks = range(comm.size)
    lengths = [
        sum(one.served_counts[rank] * table.columns for table, one in _each(tables, plan)) for rank in ranks
    ]
    out = ops.empty((sum(lengths),), _dtype(tables))
    begins = [0] * len(tables)
    for rank, message in enumerate(out.split(lengths)):
        for at, (table, one) in enumerate(_each(tables, plan)):
            count = one.served_counts[rank]
            rows, message = _take(message, count, table.columns)
            ops.put_rows(rows, table.weight, one.served[begins[at] : begins[at] + count])
            begins[at] += count
    items = [sum(one.served_counts[rank] for one in plan.tables) for rank in ranks]
    received = comm.exchange(out, lengths, plan.header, ops.empty, items).split()
    far = _by_table(received, [(table.columns, one.asked) for table, one in _each(tables, plan)])
    return [
        ops.gather_either(table.weight, _joined(rows), one.source)
        for rows, (table, one) in zip(far, _each(tables, plan), strict=True)
    ]


def update_rows(
    tables: Sequence[EmbeddingTable],
    plan: StepPlan,
    gradients: Sequence[Tensor | None],
    weight: float,
    step: RowStep,
    comm: Communicator,
) -> None:
    """Sends gradients to the owners of the rows, who update them. Collective, one round.

    Args:
        tables: all tables.
        plan: of the step.
        gradients: by table, [N, F] of the nodes of the minibatch; None if there are none, which
            counts as zeros.
        weight: of this rank's gradients. They count weight / (the sum of all ranks' weights).
        step: the numbers of the optimizer's step.
        comm: of all ranks.
    """
    sends = [gradient if weight else None for gradient in gradients]
    received = _exchange_gradients(tables, plan, sends, weight, comm)
    prefix = _prefix(tables)
    said = [_said(message, prefix, len(tables)) for message in received]
    said[comm.rank] = [weight, *(float(gradient is not None) for gradient in sends)]
    total = math.fsum(one[0] for one in said)
    if not total:
        return
    counts = [
        [count if flags[1 + at] else 0 for count, flags in zip(one.served_counts, said, strict=True)]
        for at, one in enumerate(plan.tables)
    ]
    bodies = [message[prefix:] for message in received]
    far = _by_table(bodies, [(table.columns, of) for table, of in zip(tables, counts, strict=True)])
    for at, (table, one) in enumerate(_each(tables, plan)):
        near = sends[at]
        share = [flags[0] / total if flags[1 + at] else 0.0 for flags in said]
        given = RowGradients(
            table.weight[:0] if near is None else near, far[at], one.served_counts, share, comm.rank
        )
        ops.update_rows(table.rows, one.changes, given, step)


def _exchange_gradients(
    tables: Sequence[EmbeddingTable],
    plan: StepPlan,
    sends: Sequence[Tensor | None],
    weight: float,
    comm: Communicator,
) -> list[Tensor]:
    """Returns the messages of all ranks."""
    said = torch.tensor([weight, *(gradient is not None for gradient in sends)], dtype=torch.float64)
    head = said.view(_dtype(tables))
    given = [
        (table.columns, one, gradient.detach().contiguous())
        for (table, one), gradient in zip(_each(tables, plan), sends, strict=True)
        if gradient is not None
    ]
    items = [sum(one.asked[rank] for _, one, _ in given) for rank in range(comm.size)]
    lengths = [
        0 if rank == comm.rank else len(head) + sum(one.asked[rank] * columns for columns, one, _ in given)
        for rank in range(comm.size)
    ]
    out = ops.empty((sum(lengths),), _dtype(tables))
    begins = [0] * len(given)
    for rank, message in enumerate(out.split(lengths)):
        if rank == comm.rank:
            continue
        message[: len(head)] = head
        left = message[len(head) :]
        for at, (columns, one, gradient) in enumerate(given):
            end = begins[at] + one.asked[rank]
            rows, left = _take(left, one.asked[rank], columns)
            _put_gradients(rows, gradient, one, range(begins[at], end))
            begins[at] = end
    return comm.exchange(out, lengths, plan.header, ops.empty, items).split()


def _put_gradients(out: Tensor, gradient: Tensor, plan: TablePlan, which: range) -> None:
    """Writes the gradients of some rows of other ranks, each the sum over its nodes in order."""
    if plan.sent_ptr is None:
        ops.put_rows(out, gradient, plan.sent[which.start : which.stop])
        return
    ptr = plan.sent_ptr[which.start : which.stop + 1]
    first, last = int(ptr[0]), int(ptr[-1])
    out.copy_(ops.aggregate(gradient, ptr - first, plan.sent[first:last]))


def _said(message: Tensor, prefix: int, tables: int) -> list[float]:
    """Returns what a message of gradients begins with; zeros for an empty one, this rank's own."""
    if not message.numel():
        return [0.0] * (1 + tables)
    return message[:prefix].clone().view(torch.float64).tolist()


def _prefix(tables: Sequence[EmbeddingTable]) -> int:
    """Returns the elements that a message of gradients begins with."""
    return (1 + len(tables)) * torch.float64.itemsize // _dtype(tables).itemsize


def _by_table(messages: Sequence[Tensor], shapes: Sequence[tuple[int, Sequence[int]]]) -> list[list[Tensor]]:
    """Cuts the messages of all ranks into rows.

    Args:
        messages: by rank.
        shapes: by table, the number of columns, and the number of rows from each rank.

    Returns:
        By table and rank, [m, F], views.
    """
    found: list[list[Tensor]] = [[] for _ in shapes]
    for rank, message in enumerate(messages):
        left = message
        for rows, (columns, counts) in zip(found, shapes, strict=True):
            taken, left = _take(left, counts[rank], columns)
            rows.append(taken)
    return found


def _take(message: Tensor, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    """Returns the first rows of a message, [rows, columns], and what is left of it."""
    size = rows * columns
    return message[:size].view(rows, columns), message[size:]


def _joined(rows: Sequence[Tensor]) -> Tensor:
    """Returns the rows of all ranks, without a copy if they come from one of them."""
    filled = [one for one in rows if len(one)]
    return torch.cat(filled) if len(filled) > 1 else (filled or rows)[0]


def _dtype(tables: Sequence[EmbeddingTable]) -> torch.dtype:
    return tables[0].weight.dtype


def _each(tables: Sequence[EmbeddingTable], plan: StepPlan) -> list[tuple[EmbeddingTable, TablePlan]]:
    return list(zip(tables, plan.tables, strict=True))
