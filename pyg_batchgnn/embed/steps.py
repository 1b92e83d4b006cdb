"""The order of the exchanges of all steps, on a thread beside training.

Reads and updates run one after the other in the order in which they were started, the same on every
rank. A read that is started behind an update sees it on all ranks: every owner answers after its
own update.
"""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import TensorWeakRef

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, Handle
from pyg_batchgnn.embed.step_plan import StepExchange, TableExchange
from pyg_batchgnn.embed.tables import EmbeddingTable
from pyg_batchgnn.ops import RowChanges, RowGradients, RowStep

T = TypeVar("T")


@dataclass(eq=False)
class Step:
    """One step of a macrobatch."""

    plan: StepExchange  # the rows that it reads and changes
    following: Step | None = None  # the next step of the macrobatch; None behind the last one
    #: its rows, once they were asked for, and the number of updates that were started before
    read: tuple[Handle[list[Tensor]], int] | None = None
    leaves: list[Tensor] | None = None  # its rows as they were handed out to be differentiated, by table

    def ahead(self, count: int) -> list[Step]:
        """Returns this step and up to ``count`` steps after it."""
        found = [self]
        while len(found) <= count and found[-1].following is not None:
            found.append(found[-1].following)
        return found


class Leaves:
    """A step's rows as the user got them, until an update takes their gradients. They are held
    weakly until they have a gradient."""

    def __init__(self, step: Step, rows: Sequence[Tensor]) -> None:
        self.plan, self._step, self._is_over = step.plan, weakref.ref(step), False
        self._rows = [TensorWeakRef(leaf) for leaf in rows]
        self._kept: dict[int, Tensor] = {}
        for at, leaf in enumerate(rows):
            leaf.register_post_accumulate_grad_hook(functools.partial(self._arrived, at))

    def _arrived(self, at: int, leaf: Tensor) -> None:
        if self._is_over:
            raise RuntimeError(
                "backward() reached rows of an embedding whose gradients the optimizer has already taken; "
                "call step() after all backward passes, or read the rows again with embedding(batch)"
            )
        self._kept[at] = leaf

    @property
    def is_used(self) -> bool:
        """True as long as a gradient may still arrive."""
        self._kept = {at: leaf for at, leaf in self._kept.items() if leaf.grad is not None}
        return any(leaf() is not None for leaf in self._rows)

    def clear(self) -> None:
        for weak in self._rows:
            if (leaf := weak()) is not None:
                leaf.grad = None
        self._kept.clear()

    @property
    def gradients(self) -> list[Tensor | None]:
        leaves = [self._kept.get(at, weak()) for at, weak in enumerate(self._rows)]
        return [None if leaf is None else leaf.grad for leaf in leaves]

    def take(self) -> list[Tensor | None]:
        """Returns the gradients by table; later ones raise an error."""
        found, self._is_over = self.gradients, True
        self._kept.clear()
        step = self._step()
        if step is not None:
            step.read = step.leaves = None
        return found


class StepOrder:
    """Orders reads and updates of rows, which run ahead of training as far as rows may be stale."""

    def __init__(self, tables: Sequence[EmbeddingTable], comm: Communicator, stale_steps: int) -> None:
        self._tables, self._comm, self._stale = tables, comm, stale_steps
        self._updates = 0
        self._last: Handle[None] | None = None

    def rows(self, step: Step) -> list[Tensor]:
        """Returns the rows of a step by table, [N, F] each."""
        for one in step.ahead(self._stale):
            self._read(one)
        assert step.read is not None
        return step.read[0].wait()

    def update(self, taken: Sequence[Leaves], last: Step, weight: float, numbers: RowStep) -> None:
        """Starts an update by the gradients ``taken``, and then the first read that must see it."""
        self.wait()  # for the update before, which may have failed
        plans, gradients = [one.plan for one in taken], [one.take() for one in taken]
        self._last = self._start(
            lambda: update_rows(self._tables, plans, gradients, weight, numbers, self._comm)
        )
        self._updates += 1
        ahead = last.ahead(self._stale + 1)
        if len(ahead) == self._stale + 2:
            self._read(ahead[-1])

    def wait(self) -> None:
        if self._last is not None:
            self._last.wait()
            self._last = None

    def changed(self) -> None:
        """Discards reads that were started, since rows have changed by other means."""
        self._updates += self._stale + 1

    def _read(self, step: Step) -> None:
        """Starts reading a step's rows, unless a read that is new enough was started."""
        if step.read is not None and self._updates - step.read[1] <= self._stale:
            return
        plan = step.plan
        step.leaves = None
        step.read = self._start(lambda: read_rows(self._tables, plan, self._comm)), self._updates

    def _start(self, work: Callable[[], T]) -> Handle[Any]:
        def job() -> T:
            with torch.no_grad():
                return work()

        return self._comm.start_job(job)


# The two exchanges of a step: rows go to the ranks that need them, gradients come back.
#
# A message is a vector of the tables' element type: one table's rows after the other's. That of
# gradients begins with the sender's weight and, for each table, whether gradients of it follow.


def read_rows(tables: Sequence[EmbeddingTable], plan: StepExchange, comm: Communicator) -> list[Tensor]:
    """Returns the rows of a step's nodes, [N, F] by table. Collective, one round."""
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
    plans: Sequence[StepExchange],
    gradients: Sequence[Sequence[Tensor | None]],
    weight: float,
    step: RowStep,
    comm: Communicator,
) -> None:
    """Sends gradients to the rows' owners, who update them. Collective, one round per plan."""
    came = []
    for plan, own in zip(plans, gradients, strict=True):
        sends = [gradient if weight else None for gradient in own]
        received = _exchange_gradients(tables, plan, sends, weight, comm)
        came.append(_CameGradients(tables, plan, sends, weight, received, comm.rank))
    if not came[0].total:
        return
    for at, table in enumerate(tables):
        given = [one.of_table(at, table) for one in came]
        if len(given) == 1:
            changes, rows = plans[0].tables[at].changes, given[0]
        else:
            changes, rows = _added([plan.tables[at].changes for plan in plans], given)
        ops.update_rows(table.rows, changes, rows, step)


class _CameGradients:
    """The received gradients of one minibatch: ``near`` of this rank, [N, F] or None by table, and
    ``far``, [m, F] by table and rank. ``said``: by rank, its weight, and for each table 1 if it
    sent gradients."""

    def __init__(
        self,
        tables: Sequence[EmbeddingTable],
        plan: StepExchange,
        near: list[Tensor | None],
        weight: float,
        received: Sequence[Tensor],
        rank: int,
    ) -> None:
        self.plan, self.near, self.rank = plan, near, rank
        prefix = (1 + len(tables)) * torch.float64.itemsize // _dtype(tables).itemsize
        self.said = [_said(message, prefix, len(tables)) for message in received]
        self.said[rank] = [weight, *(float(gradient is not None) for gradient in near)]
        counts = [
            [count if flags[1 + at] else 0 for count, flags in zip(one.served_counts, self.said, strict=True)]
            for at, one in enumerate(plan.tables)
        ]
        bodies = [message[prefix:] for message in received]
        self.far = _by_table(bodies, [(table.columns, of) for table, of in zip(tables, counts, strict=True)])

    @property
    def total(self) -> float:
        return math.fsum(one[0] for one in self.said)

    def of_table(self, at: int, table: EmbeddingTable) -> RowGradients:
        near, total = self.near[at], self.total
        share = [flags[0] / total if flags[1 + at] else 0.0 for flags in self.said]
        counts = self.plan.tables[at].served_counts
        return RowGradients(
            table.weight[:0] if near is None else near, self.far[at], counts, share, self.rank
        )


def _added(
    changes: Sequence[RowChanges], gradients: Sequence[RowGradients]
) -> tuple[RowChanges, RowGradients]:
    """Returns the changes of several minibatches as one minibatch's, with added gradients."""
    nears, fars = 0, 0
    rows, sources = [], []
    for change, given in zip(changes, gradients, strict=True):
        row = change.row.repeat_interleave(change.ptr.diff())
        source = torch.where(change.source >= 0, change.source + nears, change.source - fars)
        if not given.share[given.rank]:  # this minibatch has no gradients here
            row, source = row[change.source < 0], source[change.source < 0]
        rows.append(row)
        sources.append(source)
        nears += len(given.near)
        fars += sum(given.counts)
    every, order = torch.cat(rows).sort(stable=True)
    row, count = every.unique_consecutive(return_counts=True)
    ptr = torch.cat([torch.zeros(1, dtype=torch.int64), count.cumsum(0)])
    rank = gradients[0].rank
    share = [value for given in gradients for value in given.share]
    share[rank] = max(given.share[rank] for given in gradients)
    joined = RowGradients(
        torch.cat([given.near for given in gradients]),
        [one for given in gradients for one in given.far],
        [count for given in gradients for count in given.counts],
        share,
        rank,
    )
    return RowChanges(row, ptr, torch.cat(sources)[order]), joined


def _exchange_gradients(
    tables: Sequence[EmbeddingTable],
    plan: StepExchange,
    sends: Sequence[Tensor | None],
    weight: float,
    comm: Communicator,
) -> list[Tensor]:
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


def _put_gradients(out: Tensor, gradient: Tensor, plan: TableExchange, which: range) -> None:
    """Writes the gradients of other ranks' rows ``which``, each the sum over its nodes in order."""
    if plan.sent_ptr is None:
        ops.put_rows(out, gradient, plan.sent[which.start : which.stop])
        return
    ptr = plan.sent_ptr[which.start : which.stop + 1]
    first, last = int(ptr[0]), int(ptr[-1])
    out.copy_(ops.aggregate(gradient, ptr - first, plan.sent[first:last]))


def _said(message: Tensor, prefix: int, tables: int) -> list[float]:
    """Returns the numbers at the beginning of a message of gradients; zeros for an empty one."""
    if not message.numel():
        return [0.0] * (1 + tables)
    return message[:prefix].clone().view(torch.float64).tolist()


def _by_table(messages: Sequence[Tensor], shapes: Sequence[tuple[int, Sequence[int]]]) -> list[list[Tensor]]:
    """Cuts all ranks' messages into rows, [m, F] views by table and rank."""
    found: list[list[Tensor]] = [[] for _ in shapes]
    for rank, message in enumerate(messages):
        left = message
        for rows, (columns, counts) in zip(found, shapes, strict=True):
            taken, left = _take(left, counts[rank], columns)
            rows.append(taken)
    return found


def _take(message: Tensor, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    size = rows * columns
    return message[:size].view(rows, columns), message[size:]


def _joined(rows: Sequence[Tensor]) -> Tensor:
    filled = [one for one in rows if len(one)]
    return torch.cat(filled) if len(filled) > 1 else (filled or rows)[0]


def _dtype(tables: Sequence[EmbeddingTable]) -> torch.dtype:
    return tables[0].weight.dtype


def _each(tables: Sequence[EmbeddingTable], plan: StepExchange) -> list[tuple[EmbeddingTable, TableExchange]]:
    return list(zip(tables, plan.tables, strict=True))
