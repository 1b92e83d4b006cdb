"""The sizes of macrobatches and sweeps where attributes lie in files.

A longer sweep reads the file in fewer passes. Its rows wait longer for their use, which takes
memory. Of the sweeps whose rows fit, the one with the least predicted time of reading is chosen.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from pyg_batchgnn.fetch import ENTRY_BYTES, LIST_BYTES, DiskRows, Frequencies, Window
from pyg_batchgnn.loader.budget import BATCHES_AT_ONCE, OVERHEAD, LoaderProbe, PrefetchDepth, Sizes
from pyg_batchgnn.loader.options import LoaderOptions
from pyg_batchgnn.sample import SampledMinibatch
from pyg_batchgnn.types import Group

#: Minibatches sampled to measure with.
PROBES = 32
#: Fetch groups of an epoch, about: with many, a range of the file is small.
_UNITS = 128
#: The same where edges lie in files too, which each macrobatch passes over once for each hop.
_UNITS_OF_EDGES = 32
#: Numbers of rows for which reading is predicted, each by the root of two below the next one.
_POINTS = 24
#: The share of the memory for rows that an estimate may fill.
_MARGIN = 0.96


@dataclass(frozen=True)
class DiskForecast:
    """A prediction of what an epoch reads from files."""

    sizes: Sizes  # B and F
    resident_bytes: int  # the bytes of rows in memory
    period: int = 1  # the fetch groups of a sweep over the files
    rows: float = 0.0  # rows that are read
    bytes: float = 0.0  # bytes that are read
    operations: float = 0.0  # requests to the files
    seconds: float = 0.0  # the time that reading takes
    # first_bytes, first_seconds: those of it before the first minibatch.
    first_bytes: float = 0.0
    first_seconds: float = 0.0
    # What the disk keeps up by large operations; infinite: not measured.
    bytes_per_second: float = math.inf

    @property
    def least_later_seconds(self) -> float:
        """The time that later reading takes at least, though it pauses while a model computes."""
        later = (self.bytes - self.first_bytes) / self.bytes_per_second
        return max(later, self.seconds - self.first_seconds)

    @property
    def fresh(self) -> float:
        """The bytes of memory that the first pass touches for the first time, for each byte that it
        reads, about."""
        return min(1.0, self.resident_bytes / max(1.0, self.first_bytes))

    def at_pace(self, longer: float, bytes_per_second: float) -> DiskForecast:
        """Returns the prediction for a disk that is read beside other work, and that keeps up less
        than it gives in a burst.

        The first pass is read in one go. Later reads are short, and a disk that counts what it
        gives has recovered between them.

        Args:
            longer: how many times as long as by the disk's rates reads take.
            bytes_per_second: what the disk keeps up.
        """
        first = max(longer * self.first_seconds, self.first_bytes / bytes_per_second)
        seconds = longer * (self.seconds - self.first_seconds) + first
        return replace(self, seconds=seconds, first_seconds=first, bytes_per_second=bytes_per_second)


@dataclass(frozen=True, eq=False)
class ReadCurve:
    """The cost of reading by the number of rows, which lie all over the files of a group."""

    rows: np.ndarray  # [k] numbers of rows, ascending from 0
    takes: np.ndarray  # [k, 3] bytes, operations and seconds

    @classmethod
    def of(cls, rows: DiskRows, group: Group) -> ReadCurve:
        """Measures the disk if it was not measured before."""
        most = rows.num_rows[group]
        counts = sorted({round(most / 2 ** (half / 2)) for half in range(_POINTS)} - {0})
        plans = [rows.predict(group, count) for count in counts]
        takes = [(plan.bytes, plan.operations, plan.seconds) for plan in plans]
        return cls(np.array([0, *counts], dtype=float), np.array([(0, 0, 0), *takes], dtype=float))

    def at(self, rows: np.ndarray) -> np.ndarray:
        """Returns [n, 3], what reading these numbers of rows [n] takes."""
        return np.stack([np.interp(rows, self.rows, column) for column in self.takes.T], 1)


@dataclass(frozen=True, eq=False)
class DiskProbe:
    """A measurement of some minibatches, before sizes are chosen."""

    loader: LoaderProbe  # what minibatches take, without the blocks of rows in files
    rows: DiskRows
    frequencies: Mapping[Group, Frequencies]
    curves: Mapping[Group, ReadCurve]

    @classmethod
    def of(cls, loader: LoaderProbe, rows: DiskRows, sampled: Sequence[SampledMinibatch]) -> DiskProbe:
        schema, found = sampled[0].schema, {}
        for number, group in enumerate(schema.node_groups):
            if group in rows.tables:
                needed = [torch.unique(one.nodes[number].node) for one in sampled]
                found[group] = Frequencies.of(needed, rows.num_rows[group])
        return cls(loader, rows, found, {group: ReadCurve.of(rows, group) for group in found})


def choose_disk_sizes(
    options: LoaderOptions, probe: DiskProbe, num_batches: int | None, depth: PrefetchDepth, budget: int
) -> DiskForecast:
    """Resolves "auto". Rows in memory get what minibatches leave of the budget."""
    epoch = num_batches or PROBES
    sizes = _sizes(options, epoch, _UNITS_OF_EDGES if probe.loader.reading else _UNITS)
    while True:
        resident = budget - _held_bytes(options, probe, sizes, depth)
        if resident > 0 and (found := _longest(probe, sizes, resident, epoch, depth)):
            return found
        smaller = Sizes(-(-sizes.macrobatch // 2), -(-sizes.fetch // 2))
        if smaller == sizes or options.macrobatch_size != "auto":
            break
        sizes = smaller
    warnings.warn(
        f"memory_budget leaves {budget / 2**20:.0f} MiB, too little for minibatches and the rows of those in "
        f"use at macrobatch_size={sizes.macrobatch}, so rows are read for each fetch group alone; use a "
        f"smaller batch_size or smaller fanouts, or a larger budget",
        stacklevel=6,
    )
    return DiskForecast(sizes, max(0, resident))


def forecast_again(
    forecast: DiskForecast, probe: DiskProbe, num_batches: int | None, depth: PrefetchDepth
) -> DiskForecast:
    """Predicts an epoch anew from another probe, at sizes that were chosen. The longest sweep whose
    rows fit by the probe is taken, and the given forecast where none does."""
    found = _longest(probe, forecast.sizes, forecast.resident_bytes, num_batches or PROBES, depth)
    return found or forecast


def _sizes(options: LoaderOptions, epoch: int, units: int) -> Sizes:
    """Returns B and F to begin with: about ``units`` units in the epoch."""
    wanted, fetch = options.macrobatch_size, options.fetch_size
    threads = options.threads or torch.get_num_threads()
    size = epoch if wanted == "all" else min(epoch, max(threads, -(-epoch // units)))
    size = wanted if isinstance(wanted, int) else size
    return Sizes(size, min(size, fetch) if isinstance(fetch, int) else size)


def _longest(
    probe: DiskProbe, sizes: Sizes, resident: int, epoch: int, depth: PrefetchDepth
) -> DiskForecast | None:
    """Returns what the fastest sweep takes; None if the rows of none fit."""
    units, best = -(-epoch // sizes.fetch), None
    for period in sorted({min(units, round(1.1**step)) for step in range(140)}):
        forecast = _forecast(probe, sizes, resident, period, epoch, depth)
        if forecast is None:
            break
        if best is None or forecast.seconds + forecast.first_seconds < best.seconds + best.first_seconds:
            best = forecast
    # A sweep is chosen so that its rows fit whatever the estimate does not see. It reads with all.
    return best and (_forecast(probe, sizes, resident, best.period, epoch, depth, 1.0) or best)


def _forecast(
    probe: DiskProbe,
    sizes: Sizes,
    resident: int,
    period: int,
    epoch: int,
    depth: PrefetchDepth,
    share_of_room: float = _MARGIN,
) -> DiskForecast | None:
    """Returns what an epoch takes with sweeps of a period; None if its rows do not fit.
    ``share_of_room``: the share of the memory for rows that may be filled."""
    row_bytes, share = probe.rows.row_bytes, _shares(probe, sizes)
    groups, units = -(-sizes.macrobatch // sizes.fetch), -(-epoch // sizes.fetch)
    in_use = Window(depth.macrobatches, groups).before(groups - 1)
    forecast = DiskForecast(sizes, resident, period)
    for group, frequencies in probe.frequencies.items():
        rows = int(share_of_room * resident * share[group]) // (
            max(row_bytes[group], probe.loader.row) + LIST_BYTES
        )
        reads = frequencies.reads(epoch, sizes.fetch, rows, period, in_use)
        if reads is None:
            return None
        curve = probe.curves[group]
        (first,) = curve.at(np.array([reads.first]))
        # A later reading is of one of the file's ranges, with fewer rows where the epoch ends.
        later = curve.at(period * reads.later).mean(0) / period if len(reads.later) else 0 * first
        takes = first + (units - 1) * later
        forecast = replace(
            forecast,
            rows=forecast.rows + reads.total,
            bytes=forecast.bytes + float(takes[0]),
            operations=forecast.operations + float(takes[1]),
            seconds=forecast.seconds + float(takes[2]),
            first_bytes=forecast.first_bytes + float(first[0]),
            first_seconds=forecast.first_seconds + float(first[2]),
        )
    return forecast


def _held_bytes(options: LoaderOptions, probe: DiskProbe, sizes: Sizes, depth: PrefetchDepth) -> int:
    """Returns an upper estimate of the bytes held at once beside rows of files."""
    one, ahead = probe.loader, depth.macrobatches
    sampled = ((1 + ahead) * sizes.macrobatch + BATCHES_AT_ONCE) * one.sampled
    sampled += sizes.macrobatch * one.reading
    batches = (BATCHES_AT_ONCE + ahead * sizes.macrobatch) * one.attributes
    threads = min(options.threads or torch.get_num_threads(), sizes.macrobatch)
    # Beside next uses and slots lie the next uses of an epoch to come.
    looking = 1.5 * ENTRY_BYTES * sum(probe.rows.num_rows.values())
    return int(OVERHEAD * (sampled + batches + threads * one.scratch) + one.shared + looking)


def _shares(probe: DiskProbe, sizes: Sizes) -> dict[Group, float]:
    sizes_of = probe.rows.row_bytes
    wanted = {
        group: frequencies.distinct(sizes.fetch) * sizes_of[group]
        for group, frequencies in probe.frequencies.items()
    }
    return {group: one / max(1e-9, sum(wanted.values())) for group, one in wanted.items()}
