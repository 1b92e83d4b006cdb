"""What a loader did, in numbers."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields

from pyg_batchgnn.ops import count_unique_nodes
from pyg_batchgnn.sample import SampledMinibatch


@dataclass
class Counters:
    """Counts over some minibatches; seconds are wall time of the thread or process that did the work."""

    minibatches: int = 0
    nodes: int = 0
    edges: int = 0
    unique_nodes: int = 0  # distinct nodes of each macrobatch, summed over macrobatches
    bytes_gathered: int = 0  # attributes copied for minibatches
    rows_fetched: int = 0  # distinct remote nodes of each fetch group, summed over fetch groups
    cache_hits: int = 0  # distinct remote nodes of each fetch group whose rows the feature cache had
    cache_misses: int = 0  # those whose rows it had not; 0 without a cache
    cache_bytes: int = 0  # of the rows that the cache had, which else would have crossed the wire
    sample_seconds: float = 0.0  # choosing edges and numbering nodes
    fetch_seconds: float = 0.0  # gathering attributes
    export_seconds: float = 0.0  # putting the user's batch together

    def add(self, other: Counters) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


def sampling_counters(minibatches: Sequence[SampledMinibatch], num_nodes: int, begin: float) -> Counters:
    """What sampling a macrobatch counts; distinct nodes before the seconds since ``begin``, by
    `time.perf_counter`, are taken. ``num_nodes``: of the graph that their ids are of."""
    return Counters(
        minibatches=len(minibatches),
        nodes=sum(minibatch.num_nodes for minibatch in minibatches),
        edges=sum(minibatch.num_edges for minibatch in minibatches),
        unique_nodes=count_unique_nodes([minibatch.node for minibatch in minibatches], num_nodes),
        sample_seconds=time.perf_counter() - begin,
    )


@dataclass(frozen=True)
class LoaderStats:
    """Counters of the last macrobatch and of all since the loader was made."""

    last: Counters
    total: Counters


class StatsBook:
    """Collects counters. A macrobatch's account opens when it is sampled and grows as its minibatches are
    exported, which with prefetching happens on another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = Counters()
        self._total = Counters()

    def __reduce__(self) -> tuple[type[StatsBook], tuple[()]]:
        return StatsBook, ()  # a worker process starts a book of its own

    def open(self, counters: Counters) -> None:
        """Starts the next macrobatch's account with what sampling counted."""
        with self._lock:
            self._last = Counters()
            self._last.add(counters)
            self._total.add(counters)

    def add(self, counters: Counters) -> None:
        """Adds to the current macrobatch's account."""
        with self._lock:
            self._last.add(counters)
            self._total.add(counters)

    def snapshot(self) -> LoaderStats:
        with self._lock:
            last, total = Counters(), Counters()
            last.add(self._last)
            total.add(self._total)
        return LoaderStats(last, total)
