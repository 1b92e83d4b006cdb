"""The schedules in which each rank trains seed nodes of its own choice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from pyg_batchgnn.loader.position import Run
from pyg_batchgnn.loader.schedule import SeedStep, StepShape
from pyg_batchgnn.ops import part_key


class LocalSchedule:
    """The minibatches of each rank's own list of seed nodes (BatchGNN, DistDGL, FastSample).

    The lists have the seed nodes that a rank owns, or equally many on every rank.

    Ranks with fewer minibatches than the rank with the most cut their nodes into as many, whose
    sizes differ by at most one.

    Args:
        own: [S_r] positions of this rank's seed nodes in the loader's input, in its order.
        counts: S_r of every rank.
        rank: this rank.
        shape: how minibatches are cut.
        lists: what decides, with the number of ranks, which list each rank has; JSON can hold it.
    """

    stride = 1

    def __init__(
        self,
        own: Tensor,
        counts: Sequence[int],
        rank: int,
        shape: StepShape,
        lists: Mapping[str, Any] | None = None,
    ) -> None:
        self.own, self._counts, self._rank, self._shape = own, list(counts), rank, shape
        self._lists = dict(lists or {})
        self._steps = max(map(shape.batches, self._counts), default=0)

    def length(self, skip: int = 0) -> int:
        """Returns the number of steps after ``skip`` minibatches."""
        return max(self._steps - skip, 0)

    def end(self, skip: int) -> int:  # noqa: ARG002
        """Returns the number of steps."""
        return self._steps

    def steps(self, run: Run, seed: int) -> Iterator[SeedStep]:
        """Returns the steps of a run."""
        # In a world of one rank the order is that of one process.
        key = seed if self._rank == 0 else part_key(seed, f"r{self._rank}")
        count = self.own.numel()
        order = self.own[self._shape.order.visit(count, key, run.epoch)(0, count)]
        sizes = [self._sizes(count) for count in self._counts]
        mine = sizes[self._rank]
        parts = order[: sum(mine)].split(mine) if mine else ()
        seeds = [sum(step) for step in zip(*sizes, strict=True)]
        return map(SeedStep, parts[run.skip :], seeds[run.skip :])

    def num_candidates(self) -> int:
        """Returns the number of the rank's own seeds."""
        return self.own.numel()

    def candidates(self, which: Tensor) -> Tensor:
        """Returns the positions of some of the rank's own seeds."""
        return self.own[which]

    def settings(self) -> dict[str, Any]:
        """Returns the number of ranks, and what else decides their lists."""
        return {"ranks": len(self._counts), **self._lists}

    def _sizes(self, count: int) -> list[int]:
        """Returns the sizes of the minibatches of a rank with ``count`` seeds."""
        steps, size = self._steps, self._shape.batch_size
        if self._shape.batches(count) == steps:
            return [min(size, count - step * size) for step in range(steps)]
        return [count // steps + (step < count % steps) for step in range(steps)]
