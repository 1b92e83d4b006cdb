"""Resolving the sizes of macrobatches and fetch groups of a loader."""

from __future__ import annotations

from torch_geometric.loader import NodeLoader

from pyg_batchgnn.loader.budget import PrefetchDepth, Sizes, choose_sizes
from pyg_batchgnn.loader.options import LoaderOptions
from pyg_batchgnn.loader.order import order_of
from pyg_batchgnn.loader.probe import LoaderProbe, candidate_positions, probe_of
from pyg_batchgnn.loader.schedule import SeedStep
from pyg_batchgnn.loader.setup import Composition
from pyg_batchgnn.loader.work import NO_NUMBER, WorkItem
from pyg_batchgnn.loader.world import World


def resolve_sizes(
    options: LoaderOptions, parts: Composition, loader: NodeLoader, depth: PrefetchDepth, world: World
) -> Sizes:
    """Resolves "auto": the least B and F of all processes that have seeds to measure with.

    Args:
        options: the user's choice.
        parts: the parts of the loader.
        loader: the loader itself, whose arguments decide the minibatches to measure with.
        depth: the work that is done before it is asked for.
        world: the processes that make macrobatches together.
    """
    is_automatic = "auto" in (options.macrobatch_size, options.fetch_size)
    probe = _probe(parts, loader, world) if is_automatic else None
    num_batches = parts.schedule.length()
    sizes = choose_sizes(options, probe, num_batches, depth, world.max_macrobatch(num_batches))
    everyones = world.gather([probe is not None, sizes.macrobatch, sizes.fetch])
    chosen = [one for measured, *one in everyones if measured] or [one for _, *one in everyones]
    macrobatch, fetch = (min(column) for column in zip(*chosen, strict=True))
    return Sizes(macrobatch, min(fetch, macrobatch))


def _probe(parts: Composition, loader: NodeLoader, world: World) -> LoaderProbe | None:
    """Measures a few minibatches; None if there are no seeds. Statistics do not count them."""
    schedule, pipeline = parts.schedule, parts.pipeline
    count = schedule.num_candidates()
    arguments = count, loader.batch_size, schedule.length(), order_of(loader)
    chosen = candidate_positions(*arguments) if count else []
    steps = parts.number([SeedStep.of(schedule.candidates(one)) for one in chosen])
    item = WorkItem(0, NO_NUMBER, list(steps))
    sampled = world.now(lambda: pipeline.sample_uncounted(item))
    return probe_of(sampled, pipeline.num_nodes, parts.cost(sampled)) if sampled else None
