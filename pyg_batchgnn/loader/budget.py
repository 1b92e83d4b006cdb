"""The sizes of macrobatches and fetch groups, from a memory budget and a probe.

The budget is for what the loader itself holds at its peak: sampled minibatches, gathered attributes
and scratch memory. The graph and the user's features are not counted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from pyg_batchgnn.loader.options import LoaderOptions, Size
from pyg_batchgnn.loader.schedule import Order
from pyg_batchgnn.loader.stats import count_distinct
from pyg_batchgnn.ops import free_bytes
from pyg_batchgnn.sample import SampledMinibatch

#: Blocks are up to a quarter larger than asked for, and kept for what is up to half as long again.
OVERHEAD = 1.6
#: Where the user sets no budget, macrobatches of one minibatch per thread may take this many times
#: the memory of larger ones.
FOR_THREADS = 4
#: A loop holds its last batch while the next one is made.
BATCHES_AT_ONCE = 2


@dataclass(frozen=True)
class Sizes:
    """The sizes B and F: minibatches per macrobatch and per fetch group."""

    macrobatch: int
    fetch: int


@dataclass(frozen=True)
class PrefetchDepth:
    """How much a loader prepares ahead of its user, and with how many threads."""

    macrobatches: int  # macrobatches that are made ahead, attributes included
    makers: int  # threads or processes that make macrobatches at the same time
    sharing: int = 1  # threads that share the minibatches of a macrobatch


def choose_sizes(
    options: LoaderOptions,
    probe: LoaderProbe | None,
    num_batches: int | None,
    depth: PrefetchDepth,
    max_auto: int,
) -> Sizes:
    """Resolves "auto" for B and F in one process: the largest sizes that fit the memory budget.
    ``probe`` is None if no minibatch can be measured."""
    epoch = max_auto * depth.makers if num_batches is None else num_batches
    most = max(1, min(max_auto, epoch // depth.makers))
    wanted_b = _number(options.macrobatch_size, max(1, epoch))
    wanted_f = _number(options.fetch_size, wanted_b)
    if wanted_b and wanted_f:
        return Sizes(wanted_b, wanted_f)
    if probe is None:
        return Sizes(wanted_b or wanted_f or 1, wanted_f or 1)
    measured, least = probe, wanted_f or 1

    def fits(b: int, f: int) -> bool:
        return peak_bytes(measured, options, depth, Sizes(b, f)) <= budget

    def largest(most: int) -> Sizes:
        b = wanted_b or next((b for b in range(most, least, -1) if fits(b, least)), least)
        return Sizes(b, wanted_f or next((f for f in range(min(b, epoch), 1, -1) if fits(b, f)), 1))

    budget = options.memory_budget or free_bytes()
    sizes, for_threads = largest(max(most, least)), min(depth.sharing, most)
    if options.memory_budget is None and wanted_b is None and sizes.macrobatch < for_threads:
        # Nobody has set this budget. Threads without a minibatch would cost more than memory.
        budget *= FOR_THREADS
        sizes = largest(max(for_threads, least))
    peak = peak_bytes(probe, options, depth, sizes)
    if peak > budget:
        warnings.warn(
            f"the loader may hold {peak / 2**20:.0f} MiB at macrobatch_size={sizes.macrobatch}, "
            f"fetch_size={sizes.fetch}, more than memory_budget={budget / 2**20:.0f} MiB; "
            f"use a smaller batch_size or smaller fanouts",
            stacklevel=4,
        )
    return sizes


def peak_bytes(probe: LoaderProbe, options: LoaderOptions, depth: PrefetchDepth, sizes: Sizes) -> int:
    """Returns an upper estimate of the bytes that the loader holds at once with these sizes."""
    macrobatches = 1 + depth.macrobatches
    sampled = (macrobatches * sizes.macrobatch + BATCHES_AT_ONCE) * probe.sampled
    sampled += sizes.macrobatch * probe.reading
    # A macrobatch made ahead is made whole; else attributes are fetched when they are asked for.
    block = (probe.unique + (sizes.fetch - 1) * probe.growth) * probe.row
    groups = -(-sizes.macrobatch // sizes.fetch)
    gathered = block * (macrobatches * groups + 1 if depth.macrobatches else BATCHES_AT_ONCE)
    whole = macrobatches * sizes.macrobatch if depth.macrobatches else 0
    gathered += (BATCHES_AT_ONCE + whole) * probe.attributes
    threads = min(options.threads or torch.get_num_threads(), sizes.macrobatch)
    return int(OVERHEAD * (sampled + gathered + threads * probe.scratch + probe.shared))


def _number(size: Size, everything: int | None) -> int | None:
    if size == "all":
        return everything
    return None if size == "auto" else size


#: Minibatches sampled to measure with.
PROBES = 4


@dataclass(frozen=True)
class LoaderProbe:
    """The memory of one minibatch, in bytes, and how the distinct nodes of several add up."""

    sampled: int  # bytes of a minibatch's topology, as it is handed out
    attributes: int  # bytes of a PyG batch's attributes; 0 for native batches
    scratch: int  # bytes of one thread's scratch memory
    shared: int  # bytes of scratch memory of all threads together
    row: int  # bytes of one node of a fetch group's block; 0 if there is no block
    unique: int  # distinct nodes of the minibatch
    growth: int  # distinct nodes that a second minibatch adds; each further one adds fewer
    reading: int = 0  # bytes for reading its edges from files while its macrobatch is sampled


@dataclass(frozen=True)
class AttributeCost:
    """The memory that the attributes of a minibatch take, in bytes."""

    row: int = 0  # bytes of one node of a fetch group's block; 0 if there is no block
    batch: int = 0  # bytes of the attributes that a batch has for itself
    minibatch: int = 0  # bytes that fetching adds to a minibatch's own tensors


#: Returns what the attributes of sampled minibatches, at least one, take.
MeasureCost: TypeAlias = Callable[[Sequence[SampledMinibatch]], AttributeCost]


def probe_batches(
    num_seeds: int, batch_size: int | None, num_batches: int | None, order: Order, most: int = PROBES
) -> list[list[int]]:
    """Chooses a few minibatches to measure, as lists of positions in range(num_seeds), without
    drawing a random number. If seeds are visited in order, each list is a run of neighbouring
    positions, else its positions are spread over the whole range."""
    size = batch_size or -(-num_seeds // (num_batches or most))
    size = min(size, num_seeds)
    number = min(most, -(-num_seeds // max(1, size)))
    if order is Order.SEQUENTIAL:
        starts = [(num_seeds - size) * i // max(1, number - 1) for i in range(number)]
        return [list(range(start, start + size)) for start in starts]
    total = number * size
    spread = [position * num_seeds // total for position in range(total)]
    return [spread[i::number] for i in range(number)]


def probe_of(
    sampled: Sequence[SampledMinibatch],
    num_nodes: Sequence[int],
    cost: AttributeCost,
    reading: Callable[[SampledMinibatch], int],
) -> LoaderProbe:
    """Averages the memory of sampled minibatches, at least one. ``num_nodes``: by type.
    ``reading``: returns the bytes of scratch memory for reading a minibatch's edges from files."""
    biggest = biggest_of(sampled)
    unique = count_distinct([biggest], num_nodes)
    pairs = [count_distinct([biggest, one], num_nodes) for one in sampled if one is not biggest]
    return LoaderProbe(
        sampled=biggest.nbytes + cost.minibatch,
        attributes=cost.batch,
        # Of one thread: the id map (a power of two, at most two thirds full, at most 16 bytes per
        # entry), the places where adjacencies begin, and the earlier hops' arrays before they move.
        scratch=16 * 3 * biggest.num_nodes + 16 * biggest.num_nodes + 8 * biggest.num_edges,
        shared=sum(num_nodes) // 4,  # a bit and a share of a count per node, to find distinct ones
        row=cost.row,
        unique=unique,
        # Without a second minibatch to compare with there is none to fetch together with it.
        growth=max(pairs, default=unique) - unique,
        reading=reading(biggest),
    )


def biggest_of(sampled: Sequence[SampledMinibatch]) -> SampledMinibatch:
    return max(sampled, key=lambda minibatch: minibatch.nbytes)
