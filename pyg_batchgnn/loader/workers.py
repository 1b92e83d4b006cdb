"""Iterating through worker processes.

A worker never learns of a new epoch by itself, so every work item carries its epoch (design, section 2). A
PyTorch DataLoader over work items does the rest: order, prefetching, persistence, timeouts and errors.
"""

from __future__ import annotations

import enum
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from pyg_batchgnn.loader.options import Export
from pyg_batchgnn.loader.order import WorkItem
from pyg_batchgnn.loader.pipeline import Pipeline, outputs
from pyg_batchgnn.loader.stats import LoaderStats


class _Items(Dataset[WorkItem]):
    """Maps a work item to itself."""

    def __getitem__(self, item: WorkItem) -> WorkItem:
        return item


class _Schedule(Sampler[WorkItem]):
    """Hands out the work items of the epoch at hand."""

    def __init__(self) -> None:
        self.items: Iterator[WorkItem] = iter(())

    def __iter__(self) -> Iterator[WorkItem]:
        return self.items


class Stage(enum.Enum):
    """How far a worker takes a batch (PyG's ``filter_per_worker``)."""

    SAMPLE = "sample"  # the main process gathers the attributes of PyG batches
    FINISH = "finish"


class MakeBatches:
    """What a worker does with a work item. It travels to the worker, so it holds nothing of the main
    process's loader."""

    def __init__(
        self,
        pipeline: Pipeline,
        export: Export,
        fetch_size: int,
        transform: Callable[[Any], Any] | None,
        stage: Stage,
    ) -> None:
        self.pipeline = pipeline
        self.export = export
        self.fetch_size = fetch_size
        self.transform = transform
        self.stage = stage

    def __call__(self, item: WorkItem) -> tuple[list[Any], LoaderStats]:
        sampled = self.pipeline.sample(item)
        if self.export is Export.NATIVE:
            batches: list[Any] = list(self.pipeline.natives(sampled, self.fetch_size))
        elif self.stage is Stage.SAMPLE:
            return list(outputs(sampled)), self.pipeline.book.snapshot()
        else:
            batches = [self.pipeline.to_pyg(out) for out in outputs(sampled)]
        if self.transform is not None:
            batches = [self.transform(batch) for batch in batches]
        return batches, self.pipeline.book.snapshot()


class WorkerPool:
    """Worker processes for one loader; they outlive an epoch where ``persistent_workers`` is set."""

    def __init__(self, make: MakeBatches, seed: int, **dataloader_arguments: Any) -> None:
        self._schedule = _Schedule()
        self._pipeline = make.pipeline
        # A generator of its own: starting workers must not advance torch's default one, which training uses.
        self._loader = DataLoader(
            _Items(),
            batch_size=None,
            sampler=self._schedule,
            collate_fn=make,  # type: ignore[arg-type]  # with batch_size=None it gets the item itself
            generator=torch.Generator().manual_seed(seed & (2**63 - 1)),
            **dataloader_arguments,
        )

    def iterate(self, items: Iterator[WorkItem]) -> Iterator[Any]:
        """What the workers made of all items, in order, minibatch by minibatch. They begin at once."""
        self._schedule.items = items
        return self._unpack(iter(self._loader))

    def _unpack(self, made: Iterator[tuple[list[Any], LoaderStats]]) -> Iterator[Any]:
        try:
            for batches, stats in made:
                self._pipeline.book.open(stats.last)
                batches.reverse()
                while batches:
                    yield batches.pop()
        except Exception as error:
            # A worker's exception and the frames that raised it here hold each other, and the workers with
            # them: the processes would live until the garbage collector runs, be it in a fork made later.
            traceback.clear_frames(error.__traceback__)
            del made
            raise
