"""Iterating through worker processes.

A worker never learns of a new epoch by itself, so every work item carries its epoch (design,
section 2). A PyTorch DataLoader over work items does the rest: order, prefetching, persistence,
timeouts and errors.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import fcntl
import functools
import multiprocessing.queues
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, Sampler

from pyg_batchgnn.comm import interrupts_held_back
from pyg_batchgnn.loader.pipeline import Pipeline
from pyg_batchgnn.loader.schedule import SeedStep, WorkItem
from pyg_batchgnn.loader.stats import LoaderStats

#: A work item on its way to a worker: epoch, number and positions as arrays, for a pipe.
SentItem: TypeAlias = tuple[int, int, list[NDArray[np.int64]]]
#: What DataLoader is told about its workers, beside their number.
OF_WORKERS = ("persistent_workers", "prefetch_factor", "timeout", "worker_init_fn", "multiprocessing_context")
#: A killed process may take this long to end on a busy machine.
_END_SECONDS = 5.0


class _Items(Dataset[SentItem]):
    def __getitem__(self, item: SentItem) -> SentItem:
        return item


class _ItemSampler(Sampler[SentItem]):
    def __init__(self) -> None:
        self.items: Iterator[WorkItem] = iter(())

    def __iter__(self) -> Iterator[SentItem]:
        for item in self.items:
            yield item.epoch, item.number, [step.positions.numpy() for step in item.steps]


class Stage(enum.Enum):
    """How far a worker makes a batch (PyG's ``filter_per_worker``)."""

    SAMPLE = "sample"  # the main process gathers the attributes of PyG batches
    FINISH = "finish"


class MakeBatches:
    """Makes the batches of a work item in a worker process. It is sent to the worker, so it holds
    no reference to the loader."""

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

    def __init__(
        self,
        make: MakeBatches,
        seed: int,
        multiprocessing_context: BaseContext | None,
        worker_init_fn: Callable[[int], None] | None,
        **dataloader_arguments: Any,
    ) -> None:
        self._sampler = _ItemSampler()
        self._pipeline = make.pipeline
        self._started = self.interrupted = False
        self._begun = 0.0
        # A generator of its own: starting workers must not advance torch's default one.
        self._loader = DataLoader(
            _Items(),
            batch_size=None,
            sampler=self._sampler,
            collate_fn=make,  # type: ignore[arg-type]  # with batch_size=None it gets the item itself
            generator=torch.Generator().manual_seed(seed & (2**63 - 1)),
            multiprocessing_context=WorkerContext(multiprocessing_context),
            worker_init_fn=functools.partial(_ignore_interrupts, worker_init_fn),
            **dataloader_arguments,
        )

    def iterate(self, items: Iterator[WorkItem]) -> Iterator[Any]:
        """Starts the workers, and yields the batches of all items in order."""
        self._sampler.items = items
        with self._noting_interrupts():
            made = self._begin()
        return self._unpack(made)

    def _begin(self) -> Iterator[tuple[list[Any], LoaderStats]]:
        if self._started:
            return iter(self._loader)  # it may wait for the workers
        self._started, self._begun = True, time.time() - 0.02  # times of files lag
        with interrupts_held_back():  # until the workers ignore them
            return iter(self._loader)

    @contextlib.contextmanager
    def _noting_interrupts(self) -> Iterator[None]:
        try:
            yield
        except KeyboardInterrupt:
            self.interrupted = True
            raise

    def _unpack(self, made: Iterator[tuple[list[Any], LoaderStats]]) -> Iterator[Any]:
        workers = list(getattr(made, "_workers", []))
        try:
            with self._noting_interrupts():
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
            lost = _lost_worker(error, made)
            del made
            if lost:
                raise RuntimeError(lost) from error
            raise
        finally:
            _remove_memory_of_killed(workers, self._begun)


def _remove_memory_of_killed(workers: Iterable[BaseProcess], begun: float) -> None:
    """Removes the shared memory of killed workers. torch names the memory that a worker sends and
    removes the name at once, but a worker may be killed in between."""
    for worker in workers:
        if (worker.exitcode or 0) < 0:
            for name in Path("/dev/shm").glob(f"torch_{worker.pid}_*"):
                with contextlib.suppress(OSError):  # gone, or another user's
                    if name.lstat().st_mtime >= begun and _is_unused(name):
                        name.unlink()


def _is_unused(path: Path) -> bool:
    """Returns whether no process has a file open or mapped, as the system's lease tells."""
    file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)  # is ignored, if someone opens it just now
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        return False
    finally:
        os.close(file)
    return True


def _lost_worker(error: Exception, made: Iterator[Any]) -> str:
    """Returns what happened if ``error`` says that a worker died while it sent a batch; empty if a
    worker raised ``error``."""
    if not isinstance(error, (ConnectionError, EOFError)) or "in DataLoader worker process" in str(error):
        return ""
    workers = getattr(made, "_workers", [])
    # A sentinel is closed a moment before the process has ended, so `is_alive` may still say yes.
    ended = wait([worker.sentinel for worker in workers], timeout=_END_SECONDS)
    gone = ", ".join(str(worker.pid) for worker in workers if worker.sentinel in ended)
    return f"DataLoader worker (pid {gone or 'unknown'}) exited unexpectedly while it handed a batch over"


# Worker context ###################################################################################

# Worker processes that neither a Ctrl-C nor the death of one can leave in a state in which closing
# them never ends.
#
# A terminal sends Ctrl-C to all processes of its group, at any moment. If it comes while one of
# them holds a lock of a queue or of an event, the lock may stay taken, and whoever waits for it
# next waits for ever. Therefore workers ignore Ctrl-C, and the main process, which ends them,
# holds it back for as long as it puts something into a queue.


class _Queue(multiprocessing.queues.Queue):
    """A queue that releases its lock even if `put` is interrupted."""

    def put(self, obj: Any, block: bool = True, timeout: float | None = None) -> None:
        with interrupts_held_back():
            super().put(obj, block, timeout)


class _Event:
    """An event in shared memory that can be set and read, not waited for. It has no lock. That of
    `multiprocessing` has one, which a killed torch worker may keep for ever."""

    def __init__(self, context: BaseContext) -> None:
        self._flag = context.RawValue(ctypes.c_bool, False)

    def set(self) -> None:
        self._flag.value = True

    def is_set(self) -> bool:
        return bool(self._flag.value)


class WorkerContext(BaseContext):
    """A context of `multiprocessing` that neither an interrupt nor a killed process can block."""

    def __init__(self, context: BaseContext | None) -> None:
        self._context: Any = context or torch.multiprocessing.get_context()
        self.Process = self._context.Process  # type: ignore[attr-defined]

    def get_context(self, method: str | None = None) -> Any:
        return self._context.get_context(method)

    def Queue(self, maxsize: int = 0) -> _Queue:  # noqa: N802  (the name in multiprocessing)
        return _Queue(maxsize, ctx=self.get_context())

    def Event(self) -> _Event:  # type: ignore[override]  # noqa: N802
        return _Event(self.get_context())


def _ignore_interrupts(init: Callable[[int], None] | None, worker: int) -> None:
    """Makes a worker ignore Ctrl-C, then calls the user's ``init``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if init is not None:
        init(worker)
