"""Iterating through worker processes.

A worker never learns of a new epoch by itself, so every work item carries its epoch (design,
section 2). A PyTorch DataLoader over work items does the rest: order, prefetching, persistence,
timeouts and errors.
"""

from __future__ import annotations

import enum
import traceback
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, Sampler

from pyg_batchgnn.loader.pipeline import Pipeline
from pyg_batchgnn.loader.schedule import SeedStep
from pyg_batchgnn.loader.stats import LoaderStats
from pyg_batchgnn.loader.work import WorkItem

#: A work item on its way to a worker: epoch, number and positions as arrays, which a pipe can
#: carry.
SentItem: TypeAlias = tuple[int, int, list[NDArray[np.int64]]]


class _Items(Dataset[SentItem]):
    """Maps a work item to itself."""

    def __getitem__(self, item: SentItem) -> SentItem:
        return item


class _ItemSampler(Sampler[SentItem]):
    """Hands out the work items of the current epoch."""

    def __init__(self) -> None:
        self.items: Iterator[WorkItem] = iter(())

    def __iter__(self) -> Iterator[SentItem]:
        for item in self.items:
            yield item.epoch, item.number, [step.positions.numpy() for step in item.steps]


class Stage(enum.Enum):
    """The stage to which a worker takes a batch (PyG's ``filter_per_worker``)."""

    SAMPLE = "sample"  # the main process gathers the attributes of PyG batches
    FINISH = "finish"


class MakeBatches:
    """Makes the batches of a work item in a worker process.

    It travels to the worker, so it holds nothing of the main process's loader.
    """

    def __init__(
        self, pipeline: Pipeline, fetch_size: int, transform: Callable[[Any], Any] | None, stage: Stage
    ) -> None:
        self.pipeline = pipeline
        self.fetch_size = fetch_size
        self.transform = transform
        self.stage = stage

    def __call__(self, sent: SentItem) -> tuple[list[Any], LoaderStats]:
        epoch, number, positions = sent
        steps = [SeedStep.of(torch.from_numpy(one)) for one in positions]
        item = WorkItem(epoch, number, steps)
        if self.stage is Stage.SAMPLE:
            batches: list[Any] = list(self.pipeline.outputs(self.pipeline.sample(item)))
        else:
            batches = list(self.pipeline.batches(item, self.fetch_size))
            if self.transform is not None:
                batches = [self.transform(batch) for batch in batches]
        return batches, self.pipeline.book.snapshot()


class WorkerPool:
    """The worker processes of a loader. With ``persistent_workers`` they outlive an epoch."""

    def __init__(self, make: MakeBatches, seed: int, **dataloader_arguments: Any) -> None:
        self._sampler = _ItemSampler()
        self._pipeline = make.pipeline
        # A generator of its own: starting workers must not advance torch's default one, which
        # training uses.
        self._loader = DataLoader(
            _Items(),
            batch_size=None,
            sampler=self._sampler,
            collate_fn=make,  # type: ignore[arg-type]  # with batch_size=None it gets the item itself
            generator=torch.Generator().manual_seed(seed & (2**63 - 1)),
            **dataloader_arguments,
        )

    def iterate(self, items: Iterator[WorkItem]) -> Iterator[Any]:
        """Yields what the workers made of all items, in order, minibatch by minibatch.

        The workers begin at once.
        """
        self._sampler.items = items
        return self._unpack(iter(self._loader))

    def _unpack(self, made: Iterator[tuple[list[Any], LoaderStats]]) -> Iterator[Any]:
        try:
            for batches, stats in made:
                self._pipeline.book.open(stats.last)
                batches.reverse()
                while batches:
                    yield batches.pop()
        except Exception as error:
            # A worker's exception and the frames that raised it here hold each other, and the
            # workers with them: the processes would live until the garbage collector runs, be it in
            # a fork made later.
            traceback.clear_frames(error.__traceback__)
            del made
            raise
