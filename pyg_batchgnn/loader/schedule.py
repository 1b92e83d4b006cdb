"""The schedules of an epoch: which seed nodes each rank's minibatches have.

See design, section 2.

All ranks make the same number of steps. It is known from counts alone before the epoch begins. One
process is the only rank of the global schedule.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from pyg_batchgnn.loader.order import Order, Remainder
from pyg_batchgnn.loader.position import Run


class ScheduleName(str, enum.Enum):
    """The rule by which ranks share the seeds of an epoch."""

    LOCAL = "local"  # a rank trains those that it owns
    BALANCED = "balanced"  # every rank trains equally many, most of them its own
    GLOBAL = "global"  # rank g mod R trains minibatch g of one process

    @classmethod
    def of(cls, given: str | None) -> ScheduleName | None:
        """Returns a schedule by name; None stays None.

        Raises:
            ValueError: there is no such schedule.
        """
        if given is None:
            return None
        names = [one.value for one in cls]
        if given not in names:
            known = f"{', '.join(map(repr, names[:-1]))} or {names[-1]!r}"
            raise ValueError(f"schedule must be {known}, got {given!r}")
        return cls(given)


@dataclass(frozen=True, eq=False)
class SeedStep:
    """The seed nodes of one step.

    Attributes:
        positions: [S] int64, the positions of this rank's seeds in the loader's input; none if the
            rank has none left.
        seeds: the number of seeds of the step, on all ranks together.
        internal: [S] int64, the seeds' internal ids if a partitioned graph is sampled, by node type
            in the order of the schema.
    """

    positions: Tensor
    seeds: int
    internal: Tensor | None = None

    @classmethod
    def of(cls, positions: Tensor) -> SeedStep:
        """Returns the step of one process that has these seeds."""
        return cls(positions, positions.numel())


@dataclass(frozen=True)
class StepShape:
    """The rule by which an epoch's seeds are cut into minibatches.

    Attributes:
        batch_size: the seed nodes of a rank's minibatch.
        remainder: what becomes of the last seeds if they do not fill a step.
        order: the order in which seeds are visited.
    """

    batch_size: int
    remainder: Remainder
    order: Order

    def batches(self, count: int) -> int:
        """Returns the number of minibatches that ``count`` seeds make."""
        whole = count // self.batch_size
        return whole if self.remainder is Remainder.DROP else -(-count // self.batch_size)


class SeedSchedule(Protocol):
    """The steps of an epoch.

    Attributes:
        stride: the minibatches of the epoch that a step takes.
    """

    stride: int

    def length(self, skip: int = 0) -> int | None:
        """Returns the number of steps after ``skip`` minibatches, or None if it cannot be known."""

    def end(self, skip: int) -> int | None:
        """Returns how many minibatches of the epoch are done after its last step."""

    def steps(self, run: Run, seed: int) -> Iterator[SeedStep]:
        """Returns the steps of a run, and notes in it what repeating them takes."""

    def num_candidates(self) -> int:
        """Returns the number of seeds that this rank's minibatches are made of."""

    def candidates(self, which: Tensor) -> Tensor:
        """Returns the positions in the loader's input of some of these seeds."""

    def settings(self) -> dict[str, Any]:
        """Returns what decides, with the order, which minibatches there are; JSON can hold it."""


class AllSeeds:
    """The candidates of a schedule over all seeds of the loader's input.

    Args:
        count: the number of seed nodes in the input.
    """

    def __init__(self, count: int) -> None:
        self._count = count

    def num_candidates(self) -> int:
        """Returns the number of all seeds."""
        return self._count

    def candidates(self, which: Tensor) -> Tensor:
        """Returns the same positions: all seeds are candidates."""
        return which

    def settings(self) -> dict[str, Any]:
        """Returns the name of the schedule over ranks that has these minibatches."""
        return {"schedule": "global"}


class GlobalSchedule(AllSeeds):
    """The same minibatches for any number of ranks: rank g mod R trains minibatch g.

    The ranks are counted from the first minibatch that is left. With `Remainder.DROP` the last
    minibatch is left out if it is smaller, and then the last step if it has fewer than R
    minibatches.

    Args:
        count: the number of seed nodes in the loader's input.
        rank, size: of the group.
        shape: how minibatches are cut.
    """

    def __init__(self, count: int, rank: int, size: int, shape: StepShape) -> None:
        super().__init__(count)
        self._rank, self.stride, self._shape = rank, size, shape
        self._batches = shape.batches(count)

    def length(self, skip: int = 0) -> int:
        """Returns the number of steps after ``skip`` minibatches."""
        left = max(self._batches - skip, 0)
        drop = self._shape.remainder is Remainder.DROP
        return left // self.stride if drop else -(-left // self.stride)

    def end(self, skip: int) -> int:
        """Returns how many minibatches of the epoch are done after its last step."""
        return min(self._batches, skip + self.length(skip) * self.stride)

    def steps(self, run: Run, seed: int) -> Iterator[SeedStep]:
        """Returns the steps of a run."""
        visit = self._shape.order.visit(self._count, seed, run.epoch)
        firsts = range(run.skip, run.skip + self.length(run.skip) * self.stride, self.stride)
        for first in firsts:
            begin, end = self._bounds(first + self._rank)
            seeds = self._bounds(first + self.stride - 1)[1] - self._bounds(first)[0]
            yield SeedStep(visit(begin, end), seeds)

    def _bounds(self, number: int) -> tuple[int, int]:
        """Returns the places in the order where a minibatch begins and ends."""
        begin = min(number * self._shape.batch_size, self._count)
        return begin, min(begin + self._shape.batch_size, self._count)
