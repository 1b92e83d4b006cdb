"""Epochs cut into macrobatches."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyg_batchgnn.loader.position import Run
from pyg_batchgnn.loader.schedule import SeedStep

#: The number of a macrobatch that belongs to no epoch's sequence: of a probe, or of
#: ``loader(index)``.
NO_NUMBER = -1


@dataclass(frozen=True, eq=False)
class WorkItem:
    """One macrobatch to make.

    Attributes:
        epoch: which a worker process learns from here alone.
        number: the macrobatch's number in the epoch.
        steps: the seeds of its minibatches.
    """

    epoch: int
    number: int
    steps: list[SeedStep]


def work_items(steps: Iterable[SeedStep], run: Run, macrobatch_size: int) -> Iterator[WorkItem]:
    """Cuts the steps of a run into macrobatches, and notes in it how many seeds each step has."""
    left = iter(steps)
    for number in itertools.count():
        chosen = list(itertools.islice(left, macrobatch_size))
        if not chosen:
            return
        run.seeds += [step.seeds for step in chosen]
        yield WorkItem(run.epoch, number, chosen)
