"""The schedule of an order that the user's generator, sampler or batch sampler decides."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.loader import NodeLoader

from pyg_batchgnn.loader.generators import all_states, restored
from pyg_batchgnn.loader.order import as_positions
from pyg_batchgnn.loader.position import Run
from pyg_batchgnn.loader.schedule import AllSeeds, SeedStep
from pyg_batchgnn.ops import digest_text, minibatch_key


@dataclass(frozen=True, eq=False)
class DrawnOrder:
    """The objects that draw the order of a loader.

    The loader itself is not among them: that would be a reference cycle.

    Attributes:
        sampler, batch_sampler: the loader's.
        batch_size: the loader's; None if the user gave the batch sampler.
        generator: the loader's, or None.
    """

    sampler: Any
    batch_sampler: Any
    batch_size: int | None
    generator: torch.Generator | None

    @classmethod
    def of(cls, loader: NodeLoader) -> DrawnOrder:
        """Returns what draws a loader's order."""
        return cls(loader.sampler, loader.batch_sampler, loader.batch_size, loader.generator)


class DrawnSchedule(AllSeeds):
    """The minibatches that a loader's own batch sampler draws, in one process.

    A whole epoch is drawn at once. So neither training nor the size of a macrobatch comes in
    between.

    Args:
        order: what draws the minibatches.
        count: the number of seed nodes in the loader's input.
    """

    stride = 1

    def __init__(self, order: DrawnOrder, count: int) -> None:
        super().__init__(count)
        self._order = order

    def length(self, skip: int = 0) -> int | None:
        """Returns the number of steps, or None if the user's batch sampler has no length."""
        sampler = self._order.batch_sampler
        return max(len(sampler) - skip, 0) if isinstance(sampler, Sized) else None

    def end(self, skip: int) -> int | None:  # noqa: ARG002
        """Returns the number of minibatches of an epoch, or None if it cannot be known."""
        return self.length()

    def steps(self, run: Run, seed: int) -> Iterator[SeedStep]:  # noqa: ARG002
        """Draws the steps of a run.

        Raises:
            ValueError: the run is to go on after minibatches that another process handed out, but
                the sampler draws another order, or has no length.
        """
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
