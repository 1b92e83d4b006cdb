"""How many minibatches to sample and to fetch together, from a memory budget and a probe.

The budget is for what the loader itself holds at its peak: sampled minibatches, gathered attributes and
scratch memory. The graph and the user's features are not counted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psutil
import torch

from pyg_batchgnn.loader.options import Export, LoaderOptions, Size
from pyg_batchgnn.loader.order import WorkItem
from pyg_batchgnn.loader.pipeline import Pipeline
from pyg_batchgnn.loader.schedule import Order
from pyg_batchgnn.ops import count_unique_nodes
from pyg_batchgnn.sample import SampledMinibatch
from pyg_batchgnn.sample.pyg import to_sampler_output

#: Beyond this many a larger macrobatch brings nothing on one machine: threads have enough to share.
MAX_AUTO = 32
#: Blocks are handed out in sizes up to a quarter larger than asked for and kept up to half again as long.
OVERHEAD = 1.6
#: A loop holds its last batch while the next one is made.
BATCHES_AT_ONCE = 2
#: Minibatches sampled to measure with.
PROBES = 4


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

    sampled: int  # a minibatch's topology, as it is handed out
    attributes: int  # of a PyG batch's nodes and edges; 0 of native ones
    scratch: int  # of one thread
    shared: int  # scratch memory of all threads together
    row: int  # of one node of a fetch group's block; 0 where there is none
    unique: int  # distinct nodes of the minibatch
    growth: int  # distinct nodes that a further minibatch adds, which only shrinks with every one


def default_budget() -> int:
    """An eighth of the memory that is free now, in bytes."""
    return psutil.virtual_memory().available // 8


def probe_batches(
    num_seeds: int, batch_size: int | None, num_batches: int | None, order: Order
) -> list[list[int]]:
    """A few minibatches to measure with, as positions in the loader's input; nothing is drawn for them.

    Runs of neighbouring positions where that is how they are visited, else positions spread over the whole
    input.
    """
    size = batch_size or -(-num_seeds // (num_batches or PROBES))
    size = min(size, num_seeds)
    number = min(PROBES, -(-num_seeds // max(1, size)))
    if order is Order.SEQUENTIAL:
        starts = [(num_seeds - size) * i // max(1, number - 1) for i in range(number)]
        return [list(range(start, start + size)) for start in starts]
    total = number * size
    spread = [position * num_seeds // total for position in range(total)]
    return [spread[i::number] for i in range(number)]


def choose_sizes(
    options: LoaderOptions,
    probe: Callable[[], Probe | None],
    num_batches: int | None,
    ahead: Ahead,
    max_auto: int = MAX_AUTO,
) -> Sizes:
    """Resolves "auto".

    Args:
        options: the user's choice.
        probe: measures a few minibatches, where "auto" asks for it; None where there are none.
        num_batches: minibatches an epoch, where known.
        ahead: what is prepared beside the macrobatch in use.
        max_auto: the most minibatches that "auto" stands for.
    """
    epoch = max_auto * ahead.makers if num_batches is None else num_batches
    most = max(1, min(max_auto, epoch // ahead.makers))
    wanted_b, wanted_f = _number(options.macrobatch_size), _number(options.fetch_size)
    if wanted_b and wanted_f:
        return Sizes(wanted_b, wanted_f)
    measured = probe()
    if measured is None:
        return Sizes(wanted_b or wanted_f or 1, wanted_f or 1)
    budget = options.memory_budget or default_budget()

    def fits(sizes: Sizes) -> bool:
        return _peak(measured, options, ahead, sizes) <= budget

    least = wanted_f or 1
    tried: Sequence[int] = [wanted_b] if wanted_b else range(max(most, least), least - 1, -1)
    macrobatch = _first(tried, lambda b: fits(Sizes(b, least)))
    tried = [wanted_f] if wanted_f else range(macrobatch, 0, -1)
    fetch = _first(tried, lambda f: fits(Sizes(macrobatch, f)))
    sizes = Sizes(macrobatch, fetch)
    _warn_if_over(_peak(measured, options, ahead, sizes), budget, sizes)
    return sizes


def _peak(probe: Probe, options: LoaderOptions, ahead: Ahead, sizes: Sizes) -> int:
    """Upper estimate of the bytes held at once with these sizes."""
    macrobatches = 1 + ahead.macrobatches
    sampled = (macrobatches * sizes.macrobatch + BATCHES_AT_ONCE) * probe.sampled
    # A macrobatch made ahead is made whole; else attributes are fetched when they are asked for.
    block = (probe.unique + (sizes.fetch - 1) * probe.growth) * probe.row
    groups = -(-sizes.macrobatch // sizes.fetch)
    gathered = block * (macrobatches * groups + 1 if ahead.macrobatches else BATCHES_AT_ONCE)
    whole = macrobatches * sizes.macrobatch if ahead.macrobatches else 0
    gathered += (BATCHES_AT_ONCE + whole) * probe.attributes
    threads = min(options.threads or torch.get_num_threads(), sizes.macrobatch)
    return int(OVERHEAD * (sampled + gathered + threads * probe.scratch + probe.shared))


def measure(pipeline: Pipeline, batches: list[list[int]], export: Export) -> Probe | None:
    """Samples minibatches, of which it fetches one; statistics do not count them.

    Args:
        pipeline: makes batches.
        batches: minibatches' positions in the loader's input.
        export: what the loader hands out.
    """
    if not batches:
        return None
    book, pipeline.book = pipeline.book, type(pipeline.book)()
    try:
        sampled = pipeline.sample(WorkItem(0, 0, batches))
        biggest = max(sampled, key=lambda minibatch: minibatch.nbytes)
        in_place = export is Export.NATIVE and pipeline.tables() is not None
        if export is Export.NATIVE:
            (fetched,) = pipeline.natives([biggest], 1)
            sampled[sampled.index(biggest)] = fetched
        else:
            pipeline.gather(to_sampler_output(biggest, biggest.input_id))
        attributes = pipeline.book.snapshot().last.bytes_gathered
    finally:
        pipeline.book = book
    num_nodes = pipeline.sampler.graph.num_nodes
    if export is Export.PYG:
        return probe_of(sampled, num_nodes, row=0, attributes=attributes)
    unique = count_unique_nodes([biggest.node], num_nodes)
    row = 0 if in_place else -(-attributes // max(1, unique)) + 8  # and the node's id
    return probe_of(sampled, num_nodes, row=row, attributes=0)


def probe_of(sampled: Sequence[SampledMinibatch], num_nodes: int, row: int, attributes: int) -> Probe:
    """What sampled minibatches, at least one, say of those to come.

    Args:
        sampled: with ids below ``num_nodes``.
        num_nodes: nodes of the graph.
        row, attributes: see `Probe`.
    """
    biggest = max(sampled, key=lambda minibatch: minibatch.nbytes)
    unique = count_unique_nodes([biggest.node], num_nodes)
    others = [one for one in sampled if one.node is not biggest.node]
    pairs = [count_unique_nodes([biggest.node, one.node], num_nodes) for one in others]
    return Probe(
        sampled=biggest.nbytes,
        attributes=attributes,
        scratch=_scratch_bytes(biggest.num_nodes, biggest.num_edges),
        shared=num_nodes // 4,  # a bit and a share of a count a node, to find distinct ones
        row=row,
        unique=unique,
        # Without a second minibatch to compare with there is no second one to fetch together with it.
        growth=max(pairs, default=unique) - unique,
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
