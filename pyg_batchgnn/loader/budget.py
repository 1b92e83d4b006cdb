"""How many minibatches to sample and to fetch together, from a memory budget and a probe.

The budget is for what the loader itself holds at its peak: sampled minibatches, gathered attributes and
scratch memory. The graph and the user's features are not counted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psutil

from pyg_batchgnn.loader.options import Export, LoaderOptions, Size
from pyg_batchgnn.loader.order import WorkItem
from pyg_batchgnn.loader.pipeline import Pipeline
from pyg_batchgnn.ops import count_unique_nodes

#: Beyond this many a larger macrobatch brings nothing on one machine: threads have enough to share.
MAX_AUTO = 32
#: Blocks are handed out in sizes up to a quarter larger than asked for and kept up to half again as long.
OVERHEAD = 1.6
#: A loop holds its last batch while the next one is made.
BATCHES_AT_ONCE = 2


@dataclass(frozen=True)
class Sizes:
    """B and F: minibatches a macrobatch and a fetch group."""

    macrobatch: int
    fetch: int


@dataclass(frozen=True)
class Ahead:
    """Macrobatches that are made, attributes included, before they are asked for; and by how many makers."""

    macrobatches: int
    makers: int


@dataclass(frozen=True)
class Probe:
    """What one minibatch takes, in bytes, and how distinct nodes add up."""

    sampled: int  # a minibatch's topology
    scratch: int  # of one thread
    row: int  # attributes of one node
    nodes: int  # of the larger of the two probed minibatches
    unique: int  # distinct nodes of the larger one alone
    growth: int  # distinct nodes that a further minibatch adds, which only shrinks with every one


def default_budget() -> int:
    """An eighth of the memory that is free now, in bytes."""
    return psutil.virtual_memory().available // 8


def choose_sizes(
    options: LoaderOptions, pipeline: Pipeline, batches: list[list[int]], num_batches: int, ahead: Ahead
) -> Sizes:
    """Resolves "auto".

    Args:
        options: the user's choice.
        pipeline: makes batches; its statistics do not count the probe.
        batches: one or two minibatches' positions in the loader's input, to probe with.
        num_batches: minibatches an epoch.
        ahead: what is prepared beside the macrobatch in use.
    """
    most = max(1, min(MAX_AUTO, num_batches // ahead.makers))
    wanted_b, wanted_f = _number(options.macrobatch_size), _number(options.fetch_size)
    if not batches or (wanted_b and wanted_f):
        return Sizes(wanted_b or wanted_f or 1, wanted_f or 1)
    budget = options.memory_budget or default_budget()
    probe = _measure(pipeline, batches)
    least = wanted_f or 1
    tried: Sequence[int] = [wanted_b] if wanted_b else range(max(most, least), least - 1, -1)
    macrobatch = next(
        (b for b in tried if _peak(probe, options, ahead, Sizes(b, least)) <= budget), tried[-1]
    )
    tried = [wanted_f] if wanted_f else range(macrobatch, 0, -1)
    fetch = next(
        (f for f in tried if _peak(probe, options, ahead, Sizes(macrobatch, f)) <= budget), tried[-1]
    )
    sizes = Sizes(macrobatch, fetch)
    _warn_if_over(_peak(probe, options, ahead, sizes), budget, sizes)
    return sizes


def _peak(probe: Probe, options: LoaderOptions, ahead: Ahead, sizes: Sizes) -> int:
    """Upper estimate of the bytes held at once with these sizes."""
    macrobatches = 1 + ahead.macrobatches
    sampled = macrobatches * sizes.macrobatch * probe.sampled + BATCHES_AT_ONCE * probe.sampled
    if options.export is Export.NATIVE:
        unique = probe.unique + (sizes.fetch - 1) * probe.growth
        gathered = BATCHES_AT_ONCE * macrobatches * unique * (probe.row + 8)
    else:
        whole = macrobatches * sizes.macrobatch if ahead.macrobatches else 0
        gathered = (BATCHES_AT_ONCE + whole) * probe.nodes * probe.row
    threads = min(options.threads or 1, sizes.macrobatch)
    return int(OVERHEAD * (sampled + gathered + threads * probe.scratch))


def _measure(pipeline: Pipeline, batches: list[list[int]]) -> Probe:
    book, pipeline.book = pipeline.book, type(pipeline.book)()
    try:
        sampled = pipeline.sample(WorkItem(0, 0, batches))
        biggest = max(sampled, key=lambda minibatch: minibatch.num_nodes)
        (one,) = list(pipeline.natives([max(sampled, key=lambda minibatch: minibatch.num_nodes)], 1))
    finally:
        pipeline.book = book
    num_nodes = pipeline.sampler.graph.num_nodes
    unique = count_unique_nodes([biggest.node], num_nodes)
    row = sum(table.nbytes for table in one.block.values()) // max(1, unique)
    together = count_unique_nodes([minibatch.node for minibatch in sampled], num_nodes)
    # Without a second minibatch to compare with, assume that nothing is shared.
    growth = together - unique if len(sampled) > 1 else unique
    return Probe(
        sampled=biggest.nbytes + biggest.indptr.nbytes,
        scratch=_scratch_bytes(biggest.num_nodes, biggest.num_edges),
        row=row,
        nodes=biggest.num_nodes,
        unique=unique,
        growth=growth,
    )


def _scratch_bytes(nodes: int, edges: int) -> int:
    """Of one thread: the id map (a power of two, at most two thirds full, 16 bytes an entry at most), where
    adjacencies begin, and the earlier hops' arrays before they move."""
    return 16 * 3 * nodes + 16 * nodes + 8 * edges


def _first(tried: Sequence[int], fits: Callable[[int], bool]) -> int:
    return next(filter(fits, tried), tried[-1])


def _number(size: Size) -> int | None:
    return None if size == "auto" else size


def _warn_if_over(peak: int, budget: int, sizes: Sizes) -> None:
    if peak > budget:
        warnings.warn(
            f"the loader may hold {peak / 2**20:.0f} MiB at macrobatch_size={sizes.macrobatch}, "
            f"fetch_size={sizes.fetch}, more than memory_budget={budget / 2**20:.0f} MiB; "
            f"use a smaller batch_size or smaller fanouts",
            stacklevel=4,
        )
