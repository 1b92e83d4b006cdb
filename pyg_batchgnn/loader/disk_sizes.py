"""The sizes of macrobatches where attributes lie in files.

Larger macrobatches read more rows at once, in fewer passes over the file. They also leave less
memory for rows that later macrobatches need. Of the sizes that fit, the one with the least
predicted time of reading is chosen.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from pyg_batchgnn.fetch import ENTRY_BYTES, DiskRows, Frequencies, Window
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
        resident_bytes: the bytes of rows in memory; below 0 if so many are missing for what else
            the loader holds.
        rows: rows that are read.
        bytes: bytes that are read.
        operations: requests to the files.
        seconds: the time that reading takes by itself.
        first_seconds: the time of it before the first minibatch.
    """

    sizes: Sizes
    resident_bytes: int
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
    """Resolves "auto". Rows in memory get what minibatches leave of the budget."""
    epoch = num_batches or PROBES
    tried = (_forecast(options, probe, sizes, epoch, depth, budget) for sizes in _candidates(options, epoch))
    possible = [one for one in tried if one is not None]
    if possible:
        return min(possible, key=lambda one: one.seconds + one.first_seconds)
    least = _candidates(options, epoch)[0]
    held = _held_bytes(options, probe, least, depth)
    warnings.warn(
        f"memory_budget leaves {budget / 2**20:.0f} MiB, too little for the minibatches of "
        f"macrobatch_size={least.macrobatch} ({held / 2**20:.0f} MiB) and the rows of those in use; rows are "
        f"read for each fetch group alone. Use a smaller batch_size or smaller fanouts, or a larger budget",
        stacklevel=6,
    )
    return DiskForecast(least, max(0, budget - held))


def _candidates(options: LoaderOptions, epoch: int) -> list[Sizes]:
    """Returns the sizes to try: steps of a fifth up to the whole epoch, or what the user wants."""
    wanted, fetch = options.macrobatch_size, options.fetch_size
    sizes = {epoch}
    if isinstance(wanted, int):
        sizes = {wanted}
    elif wanted == "auto":
        # Macrobatches of about the same size, so that the last is not small.
        counts = {-(-epoch // max(1, round(1.2**step))) for step in range(60)}
        sizes |= {-(-epoch // count) for count in counts}
    return [Sizes(size, min(size, fetch) if isinstance(fetch, int) else size) for size in sorted(sizes)]


def _forecast(
    options: LoaderOptions,
    probe: DiskProbe,
    sizes: Sizes,
    epoch: int,
    depth: PrefetchDepth,
    budget: int,
) -> DiskForecast | None:
    """Returns what an epoch takes with these sizes; None if they do not fit the budget."""
    resident = budget - _held_bytes(options, probe, sizes, depth)
    if resident < 0:
        return None
    row_bytes, share = probe.rows.row_bytes, _shares(probe, sizes)
    groups, units = -(-sizes.macrobatch // sizes.fetch), -(-epoch // sizes.fetch)
    in_use = Window(depth.macrobatches, groups).before(groups - 1)
    forecast = DiskForecast(sizes, resident)
    for group, frequencies in probe.frequencies.items():
        rows = int(resident * share[group]) // (max(row_bytes[group], probe.loader.row) + ENTRY_BYTES)
        reads = frequencies.reads(epoch, sizes.fetch, rows, in_use)
        if reads is None:
            return None
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
    """Returns an upper estimate of the bytes held at once beside rows of files."""
    one, ahead = probe.loader, depth.macrobatches
    sampled = ((1 + ahead) * sizes.macrobatch + BATCHES_AT_ONCE) * one.sampled
    batches = (BATCHES_AT_ONCE + ahead * sizes.macrobatch) * one.attributes
    threads = min(options.threads or torch.get_num_threads(), sizes.macrobatch)
    looking = _USE_BYTES * max(probe.rows.num_rows.values(), default=0)
    return int(OVERHEAD * (sampled + batches + threads * one.scratch) + one.shared + looking)


def _shares(probe: DiskProbe, sizes: Sizes) -> dict[Group, float]:
    sizes_of = probe.rows.row_bytes
    wanted = {
        group: frequencies.distinct(sizes.fetch) * sizes_of[group]
        for group, frequencies in probe.frequencies.items()
    }
    return {group: one / max(1e-9, sum(wanted.values())) for group, one in wanted.items()}
