"""The schedules of an epoch: which seed nodes each rank's minibatches have.

See design, section 2.

All ranks make the same number of steps. It is known from counts alone before the epoch begins. One
process is the only rank of the global schedule.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.loader import NodeLoader

from pyg_batchgnn.loader.position import Order, Run, all_states, as_positions, order_of, restored
from pyg_batchgnn.ops import digest_text, minibatch_key, part_key


class ScheduleName(str, enum.Enum):
    """How ranks share the seeds of an epoch: "local", "balanced" or "global"."""

    LOCAL = "local"  # a rank trains those that it owns
    BALANCED = "balanced"  # every rank trains equally many, most of them its own
    GLOBAL = "global"  # rank g mod R trains minibatch g of one process

    @classmethod
    def of(cls, given: str | None) -> ScheduleName | None:
        """Returns a schedule by name; None stays None. Raises ValueError for an unknown name."""
        if given is None:
            return None
        if given not in [one.value for one in cls]:
            raise ValueError(f"schedule must be 'local', 'balanced' or 'global', got {given!r}")
        return cls(given)


@dataclass(frozen=True, eq=False)
class SeedStep:
    """The seed nodes of one step."""

    #: [S] int64, the positions of this rank's seeds in the loader's input; none if none are left
    positions: Tensor
    seeds: int  # the number of seeds of the step, on all ranks together
    #: [S] int64, in a partitioned graph the seeds' internal ids, by node type in the schema's order
    internal: Tensor | None = None

    @classmethod
    def of(cls, positions: Tensor) -> SeedStep:
        return cls(positions, positions.numel())


@dataclass(frozen=True)
class StepShape:
    """How an epoch's seeds are cut into minibatches."""

    batch_size: int  # the seed nodes of a rank's minibatch
    drop_last: bool  # True leaves out the last seeds if they do not fill a minibatch
    order: Order  # the order in which seeds are visited

    @classmethod
    def of(cls, loader: NodeLoader) -> StepShape:
        assert loader.batch_size is not None
        return cls(loader.batch_size, loader.drop_last, order_of(loader))

    def batches(self, count: int) -> int:
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


class SeedSchedule(ABC):
    """The steps of an epoch over ``count`` seeds of the loader's input."""

    stride = 1  # the minibatches of the epoch that a step takes

    def __init__(self, count: int) -> None:
        self.num_candidates = count  # the seeds that this rank's minibatches are made of

    @abstractmethod
    def length(self, skip: int = 0) -> int | None:
        """Returns the number of steps that are left after ``skip`` minibatches; None if unknown."""

    def end(self, skip: int) -> int | None:  # noqa: ARG002
        """Returns the number of minibatches of the epoch that all its steps have."""
        return self.length()

    @abstractmethod
    def steps(self, run: Run, seed: int) -> Iterator[SeedStep]:
        """Yields the steps of a run, and notes in ``run`` what is needed to repeat them."""

    def candidates(self, which: Tensor) -> Tensor:
        """Returns the positions in the loader's input of the candidates with these numbers."""
        return which

    def settings(self) -> dict[str, Any]:
        """Returns the settings on which the minibatches depend, beside the order, for JSON."""
        return {"schedule": "global"}


class GlobalSchedule(SeedSchedule):
    """Makes the same minibatches for any number of ranks: rank g mod R trains remaining minibatch
    g. ``drop_last`` leaves out a smaller last minibatch, and then a last step of fewer than R
    minibatches."""

    def __init__(self, count: int, rank: int, size: int, shape: StepShape) -> None:
        super().__init__(count)
        self._rank, self.stride, self._shape = rank, size, shape
        self._batches = shape.batches(count)

    def length(self, skip: int = 0) -> int:
        left = max(self._batches - skip, 0)
        return left // self.stride if self._shape.drop_last else -(-left // self.stride)

    def end(self, skip: int) -> int:
        return min(self._batches, skip + self.length(skip) * self.stride)

    def steps(self, run: Run, seed: int) -> Iterator[SeedStep]:
        visit = self._shape.order.visit(self.num_candidates, seed, run.epoch)
        firsts = range(run.skip, run.skip + self.length(run.skip) * self.stride, self.stride)
        for first in firsts:
            begin, end = self._bounds(first + self._rank)
            seeds = self._bounds(first + self.stride - 1)[1] - self._bounds(first)[0]
            yield SeedStep(visit(begin, end), seeds)

    def _bounds(self, number: int) -> tuple[int, int]:
        begin = min(number * self._shape.batch_size, self.num_candidates)
        return begin, min(begin + self._shape.batch_size, self.num_candidates)


class LocalSchedule(SeedSchedule):
    """Cuts each rank's own seed nodes into minibatches (BatchGNN, DistDGL, FastSample). ``own``:
    [S_r] positions of this rank's seed nodes in the loader's input, in its order."""

    def __init__(
        self,
        own: Tensor,
        counts: Sequence[int],
        rank: int,
        shape: StepShape,
        lists: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(own.numel())
        self.own, self._counts, self._rank, self._shape = own, list(counts), rank, shape
        self._lists = dict(lists or {})
        self._steps = max(map(shape.batches, self._counts), default=0)

    def length(self, skip: int = 0) -> int:
        return max(self._steps - skip, 0)

    def steps(self, run: Run, seed: int) -> Iterator[SeedStep]:
        # In a world of one rank the order is that of one process.
        key = seed if self._rank == 0 else part_key(seed, f"r{self._rank}")
        count = self.own.numel()
        order = self.own[self._shape.order.visit(count, key, run.epoch)(0, count)]
        sizes = [self._sizes(count) for count in self._counts]
        mine = sizes[self._rank]
        parts = order[: sum(mine)].split(mine) if mine else ()
        seeds = [sum(step) for step in zip(*sizes, strict=True)]
        return map(SeedStep, parts[run.skip :], seeds[run.skip :])

    def candidates(self, which: Tensor) -> Tensor:
        return self.own[which]

    def settings(self) -> dict[str, Any]:
        return {"ranks": len(self._counts), **self._lists}

    def _sizes(self, count: int) -> list[int]:
        steps, size = self._steps, self._shape.batch_size
        if self._shape.batches(count) == steps:
            return [min(size, count - step * size) for step in range(steps)]
        return [count // steps + (step < count % steps) for step in range(steps)]


@dataclass(frozen=True, eq=False)
class DrawnOrder:
    """The sampler and generator that draw a loader's order, without a reference to the loader."""

    #: sampler, batch_sampler: the loader's
    sampler: Any
    batch_sampler: Any
    batch_size: int | None  # the loader's; None if the user gave the batch sampler
    generator: torch.Generator | None  # the loader's, or None

    @classmethod
    def of(cls, loader: NodeLoader) -> DrawnOrder:
        return cls(loader.sampler, loader.batch_sampler, loader.batch_size, loader.generator)


class DrawnSchedule(SeedSchedule):
    """Makes the minibatches that a loader's own batch sampler draws, in one process. A whole epoch
    is drawn at once, so that neither training nor the macrobatch size changes it."""

    def __init__(self, order: DrawnOrder, count: int) -> None:
        super().__init__(count)
        self._order = order

    def length(self, skip: int = 0) -> int | None:
        sampler = self._order.batch_sampler
        return max(len(sampler) - skip, 0) if isinstance(sampler, Sized) else None

    def steps(self, run: Run, seed: int) -> Iterator[SeedStep]:  # noqa: ARG002
        """Draws the steps of an epoch, and skips those handed out before. Raises ValueError if an
        earlier process handed some out, but the order that is drawn differs or has no length."""
        if self.length() is None:
            if run.skip:
                raise ValueError(
                    "a batch_sampler without len() cannot be resumed inside an epoch; give it a __len__"
                )
            return map(SeedStep.of, map(as_positions, self._order.batch_sampler))
        saved, before = run.drawn, all_states(self._order)
        with contextlib.nullcontext() if saved is None else restored(self._order, saved["states"]):
            batches = [as_positions(batch) for batch in self._order.batch_sampler]
        digest = _digest(batches)
        if saved is not None and saved.get("digest") != digest:
            raise ValueError(
                f"the sampler draws other minibatches than it drew for epoch {run.epoch} before the state "
                f"was saved; bring it back to where it stood when that epoch began"
            )
        run.drawn = saved or {"states": before, "digest": digest}
        run.num_batches = len(batches)
        return map(SeedStep.of, batches[run.skip :])


def _digest(batches: Sequence[Tensor]) -> str:
    sizes = torch.tensor([batch.numel() for batch in batches], dtype=torch.int64)
    return digest_text(minibatch_key(torch.cat([*batches, sizes])))


#: The number of a macrobatch that belongs to no epoch's sequence: of a probe, or of
#: ``loader(index)``.
NO_NUMBER = -1


@dataclass(frozen=True, eq=False)
class WorkItem:
    """One macrobatch to make."""

    epoch: int  # which a worker process learns from here alone
    number: int  # the macrobatch's number in the epoch
    steps: list[SeedStep]  # the seeds of its minibatches


def work_items(steps: Iterable[SeedStep], run: Run, macrobatch_size: int) -> Iterator[WorkItem]:
    """Cuts the steps of a run into macrobatches, and notes in ``run`` the seeds of each step."""
    left = iter(steps)
    for number in itertools.count():
        chosen = list(itertools.islice(left, macrobatch_size))
        if not chosen:
            return
        run.seeds += [step.seeds for step in chosen]
        yield WorkItem(run.epoch, number, chosen)
