"""The order of the exchanges of all steps, on a thread beside training.

Reads and updates run one after the other in the order in which they were started, the same on every
rank. A read that is started behind an update sees it on all ranks: every owner answers after its
own update.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import TensorWeakRef

from pyg_batchgnn.comm import Communicator, Handle
from pyg_batchgnn.embed.plan import StepPlan
from pyg_batchgnn.embed.table import EmbeddingTable
from pyg_batchgnn.embed.wire import read_rows, update_rows
from pyg_batchgnn.ops import RowStep

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class StartedRead:
    """Rows that are under way, or have come.

    Attributes:
        handle: waits for them.
        updates: the number of updates that were started before.
    """

    handle: Handle[list[Tensor]]
    updates: int


@dataclass(eq=False)
class Step:
    """One step of a macrobatch.

    Attributes:
        plan: the rows that it reads and changes.
        following: the next step of the macrobatch; None behind the last one.
        read: its rows, once they were asked for.
        leaves: its rows as they were handed out to be differentiated, by table.
    """

    plan: StepPlan
    following: Step | None = None
    read: StartedRead | None = None
    leaves: list[Tensor] | None = None

    @classmethod
    def of_macrobatch(cls, plans: Sequence[StepPlan]) -> list[Step]:
        """Returns the steps of a macrobatch."""
        steps = [cls(plan) for plan in plans]
        for step, following in itertools.pairwise(steps):
            step.following = following
        return steps

    def ahead(self, count: int) -> list[Step]:
        """Returns this step and at most ``count`` that follow it."""
        found = [self]
        while len(found) <= count and found[-1].following is not None:
            found.append(found[-1].following)
        return found


class Leaves:
    """The rows of a step as they were handed out, until an update takes their gradients.

    They are kept by whoever uses them, and here once they have a gradient. So rows that were read
    and given up cost no memory.

    Args:
        step: the step.
        rows: by table, leaves that take a gradient.

    Attributes:
        plan: that of the step.
    """

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
        """True while somebody may still ask for a gradient of the rows."""
        self._kept = {at: leaf for at, leaf in self._kept.items() if leaf.grad is not None}
        return any(leaf() is not None for leaf in self._rows)

    def clear(self) -> None:
        """Drops the gradients. Later ones count."""
        for weak in self._rows:
            if (leaf := weak()) is not None:
                leaf.grad = None
        self._kept.clear()

    @property
    def gradients(self) -> list[Tensor | None]:
        """The gradients by table, [N, F] each."""
        leaves = [self._kept.get(at, weak()) for at, weak in enumerate(self._rows)]
        return [None if leaf is None else leaf.grad for leaf in leaves]

    def take(self) -> list[Tensor | None]:
        """Returns the gradients, and refuses others from now on."""
        found, self._is_over = self.gradients, True
        self._kept.clear()
        step = self._step()
        if step is not None:
            step.read = step.leaves = None
        return found


class StepOrder:
    """Reads and updates rows, ahead of training as far as rows may be stale.

    Args:
        tables: all tables of this rank.
        comm: of all ranks; nothing else uses it at the same time.
        stale_steps: k: rows may lack the updates of the k steps before theirs. With 0 they lack
            none.
    """

    def __init__(self, tables: Sequence[EmbeddingTable], comm: Communicator, stale_steps: int) -> None:
        self._tables, self._comm, self._stale = tables, comm, stale_steps
        self._updates = 0
        self._last: Handle[None] | None = None

    def rows(self, step: Step) -> list[Tensor]:
        """Returns the rows of a step by table, [N, F] each.

        The first of a macrobatch starts the reads of the steps that may be read now.
        """
        for one in step.ahead(self._stale):
            self._read(one)
        assert step.read is not None
        return step.read.handle.wait()

    def update(self, taken: Sequence[Leaves], last: Step, weight: float, numbers: RowStep) -> None:
        """Starts an update, and behind it the read of the first step that has to see it.

        Args:
            taken: what was read, and takes part with its gradients.
            last: the step that was read last.
            weight: of this rank's gradients.
            numbers: of the optimizer's step.
        """
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
        """Waits for all updates that were started."""
        if self._last is not None:
            self._last.wait()
            self._last = None

    def changed(self) -> None:
        """Notes that rows have changed by other means. Reads that were started are not used."""
        self._updates += self._stale + 1

    def _read(self, step: Step) -> None:
        """Starts the read of a step, unless one is under way that is new enough."""
        if step.read is not None and self._updates - step.read.updates <= self._stale:
            return
        plan = step.plan
        step.leaves = None
        step.read = StartedRead(self._start(lambda: read_rows(self._tables, plan, self._comm)), self._updates)

    def _start(self, work: Callable[[], T]) -> Handle[Any]:
        def job() -> T:
            with torch.no_grad():
                return work()

        return self._comm.start_job(job)
