"""Which minibatches a rank trains: the two seed schedules over ranks (design, section 2).

All ranks make the same number of steps, known from counts alone before the epoch begins.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from pyg_batchgnn.loader.order import LastBatch
from pyg_batchgnn.ops import keyed_permutation, part_key


class Visit(enum.Enum):
    """In which order an epoch visits seed nodes."""

    SHUFFLED = "keyed"  # by (seed, epoch)
    IN_ORDER = "sequential"

    def positions(self, count: int, seed: int, epoch: int) -> Tensor:
        if self is Visit.SHUFFLED:
            return keyed_permutation(count, seed, epoch)
        return torch.arange(count)


@dataclass(frozen=True)
class Epoch:
    """A rank's minibatches of an epoch, or of what is left of it.

    Attributes:
        positions: of the seeds in the loader's input, a vector a step; empty where the rank has none.
        seeds: of every step on all ranks together.
    """

    positions: list[Tensor]
    seeds: list[int]


class Schedule(Protocol):
    """How an epoch's seed nodes are spread over ranks and steps."""

    #: Minibatches of the epoch that a step takes.
    stride: int

    def length(self, skip: int = 0) -> int:
        """Steps after ``skip`` minibatches of the epoch."""

    def end(self, skip: int) -> int:
        """Minibatches of the epoch that are done after its last step."""

    def epoch(self, seed: int, epoch: int, skip: int = 0) -> Epoch:
        """The steps after ``skip`` minibatches of the epoch."""


class LocalSchedule:
    """Minibatches of the seed nodes that a rank owns (BatchGNN, DistDGL, FastSample).

    Ranks with fewer minibatches than the rank with the most cut their nodes into as many, whose sizes differ
    by at most one.

    Args:
        own: [S_r] positions of this rank's seed nodes in the loader's input, in its order.
        counts: S_r of every rank.
        rank: this one.
        batch_size: seed nodes of a rank's minibatch.
        last: whether the last step, which is smaller, is dropped.
        visit: the order.
    """

    stride = 1

    def __init__(
        self, own: Tensor, counts: Sequence[int], rank: int, batch_size: int, last: LastBatch, visit: Visit
    ) -> None:
        self.own, self.counts, self.rank = own, list(counts), rank
        self.batch_size, self.visit, self._last = batch_size, visit, last
        self._steps = max(map(self._batches, self.counts), default=0)

    def length(self, skip: int = 0) -> int:
        return max(self._steps - skip, 0)

    def end(self, skip: int) -> int:  # noqa: ARG002
        return self._steps

    def epoch(self, seed: int, epoch: int, skip: int = 0) -> Epoch:
        # In a world of one rank the order is that of one process.
        key = seed if self.rank == 0 else part_key(seed, f"r{self.rank}")
        order = self.own[self.visit.positions(self.own.numel(), key, epoch)]
        sizes = [self._sizes(count) for count in self.counts]
        mine = sizes[self.rank]
        parts = order[: sum(mine)].split(mine) if mine else ()
        seeds = [sum(step) for step in zip(*sizes, strict=True)]
        return Epoch(list(parts[skip:]), seeds[skip:])

    def _batches(self, count: int) -> int:
        whole = count // self.batch_size
        return whole if self._last is LastBatch.DROP else -(-count // self.batch_size)

    def _sizes(self, count: int) -> list[int]:
        """Of a rank's minibatches."""
        steps = self._steps
        if self._batches(count) == steps:
            return [min(self.batch_size, count - step * self.batch_size) for step in range(steps)]
        return [count // steps + (step < count % steps) for step in range(steps)]


class GlobalSchedule:
    """Minibatch g is the same whatever the ranks; rank g mod R trains it, counted from the first one left.

    Args:
        count: seed nodes in the loader's input.
        rank, size: of the group.
        batch_size: seed nodes of a minibatch.
        last: whether the last minibatch where it is smaller, and then the last step where it has fewer than
            R, are dropped.
        visit: the order.
    """

    def __init__(
        self, count: int, rank: int, size: int, batch_size: int, last: LastBatch, visit: Visit
    ) -> None:
        self.count, self.rank, self.stride = count, rank, size
        self.batch_size, self.visit, self._last = batch_size, visit, last
        whole = count // batch_size
        self._batches = whole if last is LastBatch.DROP else -(-count // batch_size)

    def length(self, skip: int = 0) -> int:
        left = max(self._batches - skip, 0)
        return left // self.stride if self._last is LastBatch.DROP else -(-left // self.stride)

    def end(self, skip: int) -> int:
        return min(self._batches, skip + self.length(skip) * self.stride)

    def epoch(self, seed: int, epoch: int, skip: int = 0) -> Epoch:
        order = self.visit.positions(self.count, seed, epoch)
        firsts = range(skip, skip + self.length(skip) * self.stride, self.stride)
        positions = [self._minibatch(order, first + self.rank) for first in firsts]
        seeds = [sum(self._size(first + rank) for rank in range(self.stride)) for first in firsts]
        return Epoch(positions, seeds)

    def _minibatch(self, order: Tensor, number: int) -> Tensor:
        begin = number * self.batch_size
        return order[begin : begin + self._size(number)]

    def _size(self, number: int) -> int:
        return max(0, min(self.batch_size, self.count - number * self.batch_size))
