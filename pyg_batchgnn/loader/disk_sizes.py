"""The sizes of macrobatches and sweeps where attributes lie in files.

A longer sweep reads the file in fewer passes. Its rows wait longer for their use, which takes
memory. The longest sweep whose rows fit is chosen.
"""

from __future__ import annotations

import math
import warnings
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from pyg_batchgnn.fetch import ENTRY_BYTES, LIST_BYTES, DiskRows, Frequencies, Window
from pyg_batchgnn.loader.budget import OVERHEAD, LoaderProbe, PrefetchDepth, Sizes, peak_bytes
from pyg_batchgnn.loader.options import LoaderOptions
from pyg_batchgnn.sample import SampledMinibatch
from pyg_batchgnn.types import Group

#: Minibatches sampled to measure with.
PROBES = 32
#: Fetch groups of an epoch, about: with many, a range of the file is small.
_UNITS = 128
#: The same where edges lie in files too, which each macrobatch passes over once for each hop.
_UNITS_OF_EDGES = 32
#: The share of the memory for rows that an estimate may fill.
_MARGIN = 0.96


@dataclass(frozen=True)
class DiskForecast:
    """How much an epoch reads from files, as predicted, and in which sizes."""

    sizes: Sizes  # B and F
    resident_bytes: int  # the bytes of rows in memory
    period: int = 1  # the fetch groups of a sweep over the files
    rows: float = 0.0  # rows that are read
    bytes: float = 0.0  # bytes that are read
    operations: float = 0.0  # requests to the files
    first_bytes: float = 0.0  # bytes that are read before the first minibatch
    bytes_per_second: float = math.inf  # the rate of the disk; infinite: not measured

    @property
    def seconds(self) -> float:
        return self.bytes / self.bytes_per_second

    @property
    def first_seconds(self) -> float:
        return self.first_bytes / self.bytes_per_second

    @property
    def least_later_seconds(self) -> float:
        return self.seconds - self.first_seconds


@dataclass(frozen=True, eq=False)
class DiskProbe:
    """What was measured of some minibatches before the sizes are chosen."""

    loader: LoaderProbe  # what minibatches take; a row of a block lies among the rows in memory
    rows: DiskRows
    needed: Mapping[Group, Sequence[Tensor]]  # the rows of each minibatch, [n] int64, distinct
    epoch: int  # minibatches of an epoch
    depth: PrefetchDepth

    @classmethod
    def of(
        cls,
        loader: LoaderProbe,
        rows: DiskRows,
        sampled: Sequence[SampledMinibatch],
        num_batches: int | None,
        depth: PrefetchDepth,
    ) -> DiskProbe:
        schema, found = sampled[0].schema, {}
        for number, group in enumerate(schema.node_groups):
            if group in rows.tables:
                found[group] = [torch.unique(one.nodes[number].node) for one in sampled]
        return cls(loader, rows, found, num_batches or PROBES, depth)

    @cached_property
    def frequencies(self) -> dict[Group, Frequencies]:
        return {
            group: Frequencies.of(needed, self.rows.num_rows[group]) for group, needed in self.needed.items()
        }

    def window(self, sizes: Sizes) -> Window:
        return Window(self.depth.macrobatches, -(-sizes.macrobatch // sizes.fetch))

    def held_bytes(self, options: LoaderOptions, sizes: Sizes) -> int:
        """Returns an upper estimate of the bytes held at once, rows from files left out."""
        held = peak_bytes(replace(self.loader, row=0), options, self.depth, sizes)
        if self.depth.macrobatches:  # batches of the macrobatch in use are let go of one by one
            held -= int(OVERHEAD * sizes.macrobatch * self.loader.attributes)
        # Beside next uses and slots lie the next uses of an epoch to come.
        return held + int(1.5 * ENTRY_BYTES * sum(self.rows.num_rows.values()))

    def forecast(self, sizes: Sizes, resident: int) -> DiskForecast | None:
        """Predicts an epoch with ``resident`` bytes of rows in memory, for the longest sweep whose
        rows fit. None if the rows of no sweep fit."""
        units = -(-self.epoch // sizes.fetch)
        samples = {group: one.sample(self.epoch, sizes.fetch) for group, one in self.frequencies.items()}

        def reads(period: int, room: float) -> dict[Group, tuple[float, float]] | None:
            found = {}
            for group, capacity in self._capacities(sizes, room).items():
                window = self.window(sizes)
                in_use = window.before(window.groups - 1)
                one = self.frequencies[group].reads(samples[group], capacity, period, in_use)
                if one is None:
                    return None
                found[group] = one
            return found

        periods = sorted({min(units, round(1.1**step)) for step in range(140)})
        at = bisect_left(periods, True, key=lambda period: reads(period, _MARGIN * resident) is None)
        if at == 0:
            return None
        period = periods[at - 1]
        found = DiskForecast(sizes, resident, period)
        for group, (first, later) in (reads(period, resident) or {}).items():
            first_bytes, first_requests = self.rows.predict(group, first)
            # A later reading is of one of the file's ranges.
            more_bytes, more_requests = self.rows.predict(group, period * later)
            readings = (units - 1) / period
            found = replace(
                found,
                rows=found.rows + first + (units - 1) * later,
                bytes=found.bytes + first_bytes + readings * more_bytes,
                operations=found.operations + first_requests + readings * more_requests,
                first_bytes=found.first_bytes + first_bytes,
            )
        return found

    def _capacities(self, sizes: Sizes, room: float) -> dict[Group, int]:
        """Returns how many rows of each group fit ``room`` bytes, which groups share in proportion
        to the bytes of their rows in a fetch group."""
        row_bytes = self.rows.row_bytes
        wanted = {
            group: one.distinct(sizes.fetch) * row_bytes[group] for group, one in self.frequencies.items()
        }
        share = room / max(1e-9, sum(wanted.values()))
        return {
            group: int(share * size) // (max(row_bytes[group], self.loader.row) + LIST_BYTES)
            for group, size in wanted.items()
        }


def choose_disk_sizes(options: LoaderOptions, probe: DiskProbe, budget: int) -> DiskForecast:
    """Resolves "auto". Rows in memory get what minibatches leave of ``budget`` bytes."""
    sizes = _first_sizes(options, probe)
    while True:
        resident = budget - probe.held_bytes(options, sizes)
        if resident > 0 and (found := probe.forecast(sizes, resident)):
            return found
        smaller = Sizes(-(-sizes.macrobatch // 2), -(-sizes.fetch // 2))
        if smaller == sizes or options.macrobatch_size != "auto":
            break
        sizes = smaller
    warnings.warn(
        f"memory_budget leaves {budget / 2**20:.0f} MiB, too little for minibatches and the rows of those in "
        f"use at macrobatch_size={sizes.macrobatch}, so rows are read for each fetch group alone; use a "
        f"smaller batch_size or smaller fanouts, or a larger budget",
        stacklevel=5,
    )
    return DiskForecast(sizes, max(0, resident))


def _first_sizes(options: LoaderOptions, probe: DiskProbe) -> Sizes:
    """Returns the B and F that the search begins with: about `_UNITS` fetch groups an epoch."""
    wanted, fetch, epoch = options.macrobatch_size, options.fetch_size, probe.epoch
    threads = options.threads or torch.get_num_threads()
    units = _UNITS_OF_EDGES if probe.loader.reading else _UNITS
    size = epoch if wanted == "all" else min(epoch, max(threads, -(-epoch // units)))
    size = wanted if isinstance(wanted, int) else size
    return Sizes(size, min(size, fetch) if isinstance(fetch, int) else size)
