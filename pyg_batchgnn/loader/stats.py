"""The work that a loader did, in numbers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from torch import Tensor

from pyg_batchgnn.ops import count_unique_nodes
from pyg_batchgnn.sample import SampledMinibatch

if TYPE_CHECKING:
    from pyg_batchgnn.disk import ReadCounters
    from pyg_batchgnn.fetch import DiskCounters


@dataclass
class LoaderCounters:
    """Counts over some minibatches.

    Seconds are wall time of the thread or process that did the work.
    """

    minibatches: int = 0  # the number of minibatches
    nodes: int = 0  # their nodes
    edges: int = 0  # their edges
    #: negatives that are later than their link, because no node of their type is earlier; see
    #: ``late_negatives`` of `MacrobatchLinkNeighborLoader`
    late_negatives: int = 0
    frozen_seeds: int = 0  # seeds whose time is later than ``freeze``, and which are sampled at that
    unique_nodes: int = 0  # distinct nodes of each macrobatch, summed over macrobatches
    bytes_gathered: int = 0  # bytes of attributes that were copied for minibatches
    rows_fetched: int = 0  # distinct remote nodes of each fetch group, summed over fetch groups
    cache_hits: int = 0  # distinct remote nodes of each fetch group whose rows the feature cache had
    cache_misses: int = 0  # distinct remote nodes whose rows it had not; 0 without a cache
    cache_bytes: int = 0  # bytes that did not cross the wire because the cache had the rows
    disk_rows: int = 0  # rows that were read from files, also for later fetch groups
    #: distinct nodes of each fetch group whose rows were in memory when its minibatches were made
    disk_hits: int = 0
    disk_useful: int = 0  # bytes of the rows that were read from files
    #: bytes that were read from files; more than ``disk_useful``, since what lies between two rows
    #: is read where that is faster
    disk_bytes: int = 0
    disk_operations: int = 0  # requests to the files
    #: edges that were read from files; one that is picked twice counts twice, and so does one whose
    #: id lies in a file too
    topology_edges: int = 0
    topology_bytes: int = 0  # bytes that were read for them
    topology_operations: int = 0  # requests to these files
    minibatches_ahead: int = 0  # minibatches that were sampled to know the epoch's rows before it starts
    rows_from_device: int = 0  # rows of batches on a device that were read from tables there
    bytes_from_device: int = 0  # their bytes
    #: rows that the device's cache had; of a fetch group each distinct one once if its block fits
    rows_from_device_cache: int = 0
    bytes_from_device_cache: int = 0  # their bytes
    rows_over_bus: int = 0  # rows that came from the host, counted likewise
    bytes_over_bus: int = 0  # their bytes
    #: bytes of ids and edges that were copied to the device, and of batches that the CPU put
    #: together
    topology_over_bus: int = 0
    disk_seconds: float = 0.0  # time for reading attributes from files
    topology_seconds: float = 0.0  # time for reading edges from files, a part of that for sampling
    ahead_seconds: float = 0.0  # time for sampling ahead
    sample_seconds: float = 0.0  # time for choosing edges and relabelling nodes
    fetch_seconds: float = 0.0  # time for gathering attributes
    export_seconds: float = 0.0  # time for putting the user's batch together

    def add(self, other: LoaderCounters) -> None:
        """Adds other counts to these."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


def disk_counts(counters: DiskCounters | None) -> dict[str, Any]:
    """Returns counts of reading rows from files, by the names of `LoaderCounters`."""
    if counters is None:
        return {}
    return {
        "disk_rows": counters.rows,
        "disk_hits": counters.hits,
        "disk_useful": counters.useful,
        "disk_bytes": counters.bytes,
        "disk_operations": counters.operations,
        "disk_seconds": counters.seconds,
    }


def edge_counts(counters: ReadCounters) -> LoaderCounters:
    """Returns counts of reading edges from files."""
    return LoaderCounters(
        topology_edges=counters.rows,
        topology_bytes=counters.bytes,
        topology_operations=counters.operations,
        topology_seconds=counters.seconds,
    )


def sampling_counters(
    minibatches: Sequence[SampledMinibatch], num_nodes: Sequence[int], begin: float
) -> LoaderCounters:
    """Returns the counters of a sampled macrobatch. ``begin``: `time.perf_counter` before it."""
    return LoaderCounters(
        minibatches=len(minibatches),
        nodes=sum(minibatch.num_nodes for minibatch in minibatches),
        edges=sum(minibatch.num_edges for minibatch in minibatches),
        unique_nodes=count_distinct(minibatches, num_nodes),
        sample_seconds=time.perf_counter() - begin,
    )


def count_distinct(minibatches: Sequence[SampledMinibatch], num_nodes: Sequence[int]) -> int:
    """Returns the number of distinct nodes of some minibatches, over all types. ``num_nodes``: by
    type, a number above all ids."""
    by_type: dict[int, list[Tensor]] = {}
    for minibatch in minibatches:
        for number, one in minibatch.reached_nodes.items():
            by_type.setdefault(number, []).append(one.node)
    return sum(count_unique_nodes(nodes, num_nodes[number]) for number, nodes in by_type.items())


@dataclass(frozen=True)
class DeviceMemory:
    """The memory that a loader holds for its device now, in bytes, and peaks."""

    pinned_bytes: int = 0  # page-locked memory of the host, for copies
    pinned_peak: int = 0  # the most that it was
    # the user's tables in page-locked memory, which the device reads itself
    registered_bytes: int = 0
    process_locked: int = 0  # page-locked memory of all loaders of this process, each table once
    pageable_copies: int = 0  # how many copies came from memory that is not page-locked
    table_bytes: int = 0  # tables in the device's memory
    cache_bytes: int = 0  # rows in the device's cache, and the places of nodes in it
    # the largest block of a fetch group's distinct rows; there are two at a time
    block_peak: int = 0
    # the most that batches took that were on the device and not handed out yet, of which there are
    # four at most. Blocks and tables that they share are not counted
    batches_peak: int = 0


@dataclass(frozen=True)
class LoaderStats:
    """The counters of the last macrobatch, and of all since the loader was made.

    >>> batches = list(loader)
    >>> loader.stats().total.minibatches == len(batches)
    True
    """

    last: LoaderCounters
    total: LoaderCounters
    device: DeviceMemory | None = None  # the memory that is held for a device; None without one
