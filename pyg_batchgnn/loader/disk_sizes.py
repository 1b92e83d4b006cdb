"""The sizes of macrobatches and of the row cache, where attributes lie in files.

Larger macrobatches read more rows at once, in fewer passes over the file; a larger cache reads
fewer rows. Both take memory of one budget. It is split so that the predicted time of reading is
least.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from pyg_batchgnn.fetch import ENTRY_BYTES, DiskRows, Frequencies
from pyg_batchgnn.loader.budget import BATCHES_AT_ONCE, OVERHEAD, LoaderProbe, PrefetchDepth, Sizes
from pyg_batchgnn.loader.options import LoaderOptions
from pyg_batchgnn.sample import SampledMinibatch
from pyg_batchgnn.types import Group

#: Minibatches sampled to measure with.
PROBES = 32
#: Bytes that the next use of a row takes while an epoch's accesses are looked through.
_USE_BYTES = 4


@dataclass(frozen=True)
class DiskForecast:
    """A prediction of what an epoch reads from files.

    Attributes:
        sizes: B and F.
        cache_bytes: the bytes of the row cache.
        rows: rows that are read.
        bytes: bytes that are read.
        operations: requests to the files.
        seconds: the time that reading takes by itself.
        first_seconds: the time of it before the first minibatch.
    """

    sizes: Sizes
    cache_bytes: int
    rows: float = 0.0
    bytes: float = 0.0
    operations: float = 0.0
    seconds: float = 0.0
    first_seconds: float = 0.0


@dataclass(frozen=True, eq=False)
class DiskProbe:
    """A measurement of some minibatches, before sizes are chosen."""

    loader: LoaderProbe  # what minibatches take, without the blocks of rows in files
    rows: DiskRows
    frequencies: Mapping[Group, Frequencies]

    @classmethod
    def of(cls, loader: LoaderProbe, rows: DiskRows, sampled: Sequence[SampledMinibatch]) -> DiskProbe:
        schema, found = sampled[0].schema, {}
        for number, group in enumerate(schema.node_groups):
            if group in rows.tables:
                needed = [torch.unique(one.nodes[number].node) for one in sampled]
                found[group] = Frequencies.of(needed, rows.num_rows[group])
        return cls(loader, rows, found)


def choose_disk_sizes(
    options: LoaderOptions, probe: DiskProbe, num_batches: int | None, depth: PrefetchDepth, budget: int
) -> DiskForecast:
    """Resolves "auto", and gives the cache what minibatches and blocks leave of the budget."""
    epoch = num_batches or PROBES
    tried = [_forecast(options, probe, sizes, epoch, depth, budget) for sizes in _candidates(options, epoch)]
    possible = [one for one in tried if one.cache_bytes >= 0]
    if not possible:
        least = max(tried, key=lambda one: one.cache_bytes)
        warnings.warn(
            f"the loader may hold {(budget - least.cache_bytes) / 2**20:.0f} MiB at "
            f"macrobatch_size={least.sizes.macrobatch}, more than the {budget / 2**20:.0f} MiB that "
            f"memory_budget leaves; use a smaller batch_size or smaller fanouts",
            stacklevel=6,
        )
        return replace(least, cache_bytes=0)
    return min(possible, key=lambda one: one.seconds + one.first_seconds)


def _candidates(options: LoaderOptions, epoch: int) -> list[Sizes]:
    """Returns the sizes to try: powers of two and the whole epoch, or what the user wants."""
    wanted, fetch = options.macrobatch_size, options.fetch_size
    if isinstance(wanted, int):
        sizes = [wanted]
    elif wanted == "all":
        sizes = [epoch]
    else:
        sizes = sorted({epoch, *(1 << power for power in range(epoch.bit_length()))})
    return [Sizes(size, min(size, fetch) if isinstance(fetch, int) else size) for size in sizes]


def _forecast(
    options: LoaderOptions,
    probe: DiskProbe,
    sizes: Sizes,
    epoch: int,
    depth: PrefetchDepth,
    budget: int,
) -> DiskForecast:
    held = _held_bytes(options, probe, sizes, depth)
    capacity = budget - held
    if capacity < 0:
        return DiskForecast(sizes, capacity)
    row_bytes, share = probe.rows.row_bytes, _shares(probe, sizes)
    forecast = DiskForecast(sizes, capacity)
    for group, frequencies in probe.frequencies.items():
        rows = int(capacity * share[group]) // (row_bytes[group] + ENTRY_BYTES)
        reads = frequencies.reads(epoch, sizes.fetch, min(rows, frequencies.rows))
        units = -(-epoch // sizes.fetch)
        first = probe.rows.predict(group, reads.first)
        each = probe.rows.predict(group, (reads.total - reads.first) / max(1, units - 1))
        forecast = replace(
            forecast,
            rows=forecast.rows + reads.total,
            bytes=forecast.bytes + first.bytes + (units - 1) * each.bytes,
            operations=forecast.operations + first.operations + (units - 1) * each.operations,
            seconds=forecast.seconds + first.seconds + (units - 1) * each.seconds,
            first_seconds=forecast.first_seconds + first.seconds,
        )
    return forecast


def _held_bytes(options: LoaderOptions, probe: DiskProbe, sizes: Sizes, depth: PrefetchDepth) -> int:
    """Returns an upper estimate of the bytes held at once beside the cache."""
    one, ahead = probe.loader, depth.macrobatches
    sampled = ((1 + ahead) * sizes.macrobatch + BATCHES_AT_ONCE) * one.sampled
    batches = (BATCHES_AT_ONCE + ahead * sizes.macrobatch) * one.attributes
    row_bytes = probe.rows.row_bytes
    block = sum(
        frequencies.distinct(sizes.fetch) * (max(row_bytes[group], one.row) + ENTRY_BYTES)
        for group, frequencies in probe.frequencies.items()
    )
    # A group's block lies beside the one before it, whose last batch may be in use.
    blocks = block * max(2, 1 + ahead * -(-sizes.macrobatch // sizes.fetch))
    threads = min(options.threads or torch.get_num_threads(), sizes.macrobatch)
    looking = _USE_BYTES * max(probe.rows.num_rows.values(), default=0)
    return int(OVERHEAD * (sampled + batches + threads * one.scratch) + 1.25 * blocks + one.shared + looking)


def _shares(probe: DiskProbe, sizes: Sizes) -> dict[Group, float]:
    sizes_of = probe.rows.row_bytes
    wanted = {
        group: frequencies.distinct(sizes.fetch) * sizes_of[group]
        for group, frequencies in probe.frequencies.items()
    }
    return {group: one / max(1e-9, sum(wanted.values())) for group, one in wanted.items()}
