"""The last stage of a loader whose batches arrive on a device: its queue, its memory, its lane."""

from __future__ import annotations

import contextlib
import functools
import itertools
import queue
import threading
import weakref
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from pyg_batchgnn.device import (
    CpuLane,
    FeaturePlacement,
    HostRows,
    Parcel,
    PinnedPool,
    PlacedTables,
    PlacingRules,
    Ticket,
    lane_of,
    locked_bytes,
    tensors_of,
)
from pyg_batchgnn.loader.export import Exported
from pyg_batchgnn.loader.options import LoaderOptions
from pyg_batchgnn.loader.pipeline import Pipeline, immediately
from pyg_batchgnn.loader.prefetch import Executor, IsWanted, beside, drain, in_mode, waiting
from pyg_batchgnn.loader.schedule import WorkItem
from pyg_batchgnn.loader.stats import DeviceMemory, LoaderCounters
from pyg_batchgnn.ops import free_bytes
from pyg_batchgnn.sample import SampledMinibatch

#: Batches that wait on the device for the user.
DEPTH = 3
#: The share of a device's free memory that narrow tables, and the block of a fetch group, may take.
_SHARE = 8


#: The macrobatches that are to be made, over ranks what waits for each; None after the last one.
Asked: TypeAlias = "queue.SimpleQueue[Any]"


@dataclass(frozen=True, eq=False)
class OnDevice:
    """A batch on the device. The user's stream must wait for ``ticket`` before it reads it."""

    batch: Any
    ticket: Ticket
    nbytes: int


class DeviceStage:
    """The last stage of a loader whose batches arrive on a device."""

    def __init__(self, options: LoaderOptions) -> None:
        assert options.device is not None
        budget = options.memory_budget
        bound = free_bytes() if budget is None else budget // 2
        self.lane: CpuLane = lane_of(options.device)
        self.rows = HostRows(
            self.lane,
            PinnedPool(self.lane, bound if options.pinned_memory is None else options.pinned_memory),
            options.pinned_memory,
        )
        self.placed: PlacedTables | None = None
        self.block_peak = self.batches_peak = 0
        self._made_ahead: weakref.WeakSet[OnDevice] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._options = options
        self._group_size: int | None = None  # minibatches whose distinct rows fit a block
        self._whole: dict[int, tuple[Tensor, int, Tensor]] = {}

    # Queue #######################################################################################

    @property
    def ahead(self) -> int:
        """The number of macrobatches that are sampled ahead of the user."""
        return max(1, self._options.prefetch)

    def deliver(
        self, pipeline: Pipeline, items: Iterator[WorkItem], fetch_size: int, executor: Executor | None
    ) -> Generator[Any]:
        """Yields the batches of an epoch. Sampling, reading and copying have a thread each."""
        asked: Asked = queue.SimpleQueue()
        make = self._made if executor is None else self._shipped
        made = beside(
            lambda is_wanted: make(pipeline, asked, is_wanted, fetch_size), DEPTH, "macrobatch device"
        )
        steps: deque[int] = deque()
        consumer = threading.current_thread()

        def whole(item: WorkItem) -> list[list[Any]]:
            return list(pipeline.fetched(item, pipeline.sample(item), fetch_size, immediately))

        def ask() -> None:
            item = next(items, None)
            if item is not None:
                steps.append(len(item.steps))
            if item is None or executor is None:
                asked.put(item)
            else:
                asked.put(executor.start(functools.partial(in_mode, torch.is_grad_enabled(), whole, item)))

        try:
            for _ in range(1 + self.ahead):
                ask()
            while steps:
                yield from itertools.islice(made, steps.popleft())
                ask()
            yield from made  # nothing, or the error that ended it
        finally:
            asked.put(None)
            made.close()
            if executor is not None:
                executor.close(wait=threading.current_thread() is consumer)
            self.lane.mark().wait()  # or kernels may still read tables of the host that a script changes

    def _made(self, pipeline: Pipeline, asked: Asked, is_wanted: IsWanted, fetch_size: int) -> Iterator[Any]:
        if pipeline.look_ahead is not None:  # files are read in the order of the macrobatches
            for item in waiting(asked, is_wanted):
                yield from pipeline.batches(item, fetch_size)
            return
        groups = beside(lambda _: self._groups(pipeline, asked, is_wanted, fetch_size), 1, "macrobatch rows")
        with contextlib.closing(groups):
            for ready in groups:
                yield from pipeline.exported(ready)

    def _shipped(self, pipeline: Pipeline, asked: Asked, is_wanted: IsWanted, _: int) -> Iterator[Any]:
        """Makes batches from minibatches that the executor of the ranks samples and fetches."""
        for wait in waiting(asked, is_wanted):
            for ready in drain(wait()):
                yield from pipeline.exported(ready)

    def _groups(
        self, pipeline: Pipeline, asked: Asked, is_wanted: IsWanted, fetch_size: int
    ) -> Iterator[list[Any]]:
        """Yields the minibatches of each fetch group after their rows were fetched."""

        def sample(is_wanted_here: IsWanted) -> Iterator[tuple[WorkItem, list[SampledMinibatch]]]:
            # This thread's consumer closes it, or the user alone has gone.
            for item in waiting(asked, lambda: is_wanted_here() and is_wanted()):
                yield item, pipeline.sample(item)

        sampled = beside(sample, self.ahead, "macrobatch sampling")
        with contextlib.closing(sampled):
            for item, minibatches in sampled:
                if pipeline.fetcher is None:
                    yield minibatches
                else:
                    size = min(fetch_size, self._group_size or fetch_size)
                    yield from pipeline.fetched(item, minibatches, size, immediately)

    def receive(self, made: OnDevice) -> Any:
        """Hands a batch over to the stream of the calling thread. The host does not wait."""
        tensors = () if self.lane.device.type == "cpu" else tensors_of(made.batch)
        self.lane.hand_over(made.ticket, tensors)
        return made.batch

    def finished(self, batch: Any, counters: LoaderCounters) -> Exported:
        nbytes = sum(one.untyped_storage().nbytes() for one in tensors_of(batch, shared=False))
        made = OnDevice(batch, self.lane.mark(), nbytes)
        with self._lock:
            self._made_ahead.add(made)
            self.batches_peak = max(self.batches_peak, sum(one.nbytes for one in self._made_ahead))
        return Exported(made, counters)

    def refuse_choices(self, because: str) -> None:
        """Raises ValueError if the user placed tables, but rows are gathered on the host."""
        placement, cache = self._options.feature_placement, self._options.device_cache
        given = f"device_cache={cache}" if cache else f"feature_placement={placement!r}"
        if cache or placement == "device":
            raise ValueError(
                f"{given} is for the tables of a Data in memory, but {because}: rows are gathered on the "
                f"host; leave it out"
            )

    # Memory ######################################################################################

    def too_many(self, minibatches: int) -> None:
        """Halves the fetch group, as a block cannot hold the rows of ``minibatches``."""
        self._group_size = max(1, minibatches // 2)

    def rules(self) -> PlacingRules:
        """Returns where tables lie, by the options and the memory that is free on the device."""
        most, budget = self.lane.free_bytes() // _SHARE, self._options.memory_budget
        if budget is not None:
            most = min(most, budget // 2)
        placement = FeaturePlacement(self._options.feature_placement)
        # Two blocks at a time: one is read while batches are made of the other.
        return PlacingRules(placement, self._options.device_cache or 0, most, most // 2)

    def without_pinned(self, options: LoaderOptions) -> LoaderOptions:
        """Returns the options with the memory budget less the bound of pinned memory."""
        budget = options.memory_budget
        if budget is None:
            return options
        return replace(options, memory_budget=max(1, budget - self.rows.pool.bound))

    def memory(self) -> DeviceMemory:
        placed, pool = self.placed, self.rows.pool
        tables = [] if placed is None else placed.every_host_table()
        return DeviceMemory(
            pinned_bytes=pool.pinned_bytes,
            pinned_peak=pool.peak_bytes,
            registered_bytes=sum(one.locked_bytes for one in tables),
            process_locked=locked_bytes(),
            pageable_copies=pool.pageable,
            table_bytes=0 if placed is None else placed.device_bytes,
            cache_bytes=0 if placed is None else placed.cache_bytes,
            block_peak=self.block_peak,
            batches_peak=self.batches_peak,
        )

    # Parcels #####################################################################################

    def parcel(self) -> Parcel:
        return Parcel(self.lane, self.rows.pool)

    def whole(self, value: Any) -> Any:
        """Copies an attribute of the whole graph (no row per node) to the device, once."""
        if not isinstance(value, Tensor):
            return value.to(self.lane.device)
        if value.device == self.lane.device:
            return value
        held = self._whole.get(id(value))
        if held is None or held[0] is not value or held[1] != value._version:
            if len(self._whole) >= _WHOLE:
                self._whole.clear()
            held = self._whole[id(value)] = value, value._version, value.to(self.lane.device)
        return held[2]


#: Attributes of the whole graph that are kept on the device.
_WHOLE = 64
