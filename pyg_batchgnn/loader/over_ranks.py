"""`MacrobatchNeighborLoader` of a graph that is spread over ranks."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, Handle
from pyg_batchgnn.data import EDGES, NODES
from pyg_batchgnn.fetch import CacheRequest, SeedShare
from pyg_batchgnn.loader.arguments import Sampling, count_seeds, seed_nodes
from pyg_batchgnn.loader.beside import cached_store
from pyg_batchgnn.loader.budget import Ahead, Probe, Sizes, choose_sizes, probe_batches, probe_of
from pyg_batchgnn.loader.neighbor_loader import MacrobatchNeighborLoader
from pyg_batchgnn.loader.options import Export
from pyg_batchgnn.loader.order import LastBatch, as_list
from pyg_batchgnn.loader.position import Run
from pyg_batchgnn.loader.rank_arguments import (
    NoSampler,
    refuse_over_ranks,
    seed_of_rank_0,
    split_nodes,
    spread_stores,
    without_workers,
)
from pyg_batchgnn.loader.rank_pipeline import RankItem, RankPipeline, Wanted
from pyg_batchgnn.loader.schedule import Order
from pyg_batchgnn.loader.steps import GlobalSchedule, LocalSchedule, Schedule, Visit
from pyg_batchgnn.ops import digest_text, minibatch_key
from pyg_batchgnn.sample import SamplingPlan


class RanksNeighborLoader(MacrobatchNeighborLoader):
    """What `MacrobatchNeighborLoader` is where it is given ``(DistFeatureStore, DistGraphStore)``.

    Collective, on every rank in the same order: making one, beginning an epoch (``iter``), taking a
    minibatch, and ``loader(index)``. All ranks hand out the same number of minibatches, ``len(loader)``.
    """

    def _allowed(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        return without_workers(kwargs)

    def _prepare(
        self, data: Any, wanted: Sampling, input_nodes: Any, kwargs: dict[str, Any]
    ) -> tuple[Any, Any, dict[str, Any]]:
        self._features, self._graph = spread_stores(data)
        self._comm.run_job(lambda: None)  # after what another loader prepares
        refuse_over_ranks(wanted, self._options.reading.features, kwargs)
        num_nodes = self._graph.num_nodes
        if isinstance(input_nodes, str):
            input_nodes = split_nodes(self._graph, input_nodes)
        nodes = seed_nodes(data, input_nodes, num_nodes)
        count_seeds(nodes, kwargs.get("input_id"), num_nodes)
        self._visit = Visit.SHUFFLED if kwargs.pop("shuffle", False) else Visit.IN_ORDER
        self._wanted = wanted
        plan = SamplingPlan.from_pyg(wanted.num_neighbors, wanted.replace)
        if self._options.aggregation_cache is not None:
            plan = plan.without_last_hop()
        return NoSampler(plan), nodes, kwargs

    def _begin(self) -> None:
        if self.transform_sampler_output is not None:
            raise ValueError("transform_sampler_output is not possible over ranks; use transform")
        comm, options, cache = self._comm, self._options, self._options.aggregation_cache
        features = self._features if cache is None else cached_store(cache, self._features)
        comm.check_agreement(self._arguments())
        self._seed = self._wanted.seed if self._wanted.seed is not None else seed_of_rank_0(comm)
        self._schedule = self._make_schedule()
        known = self._features.fields
        names = options.reading.chosen([name for fields in known.values() for name in fields])
        edge_names = [name for name in names if name in known[EDGES]]
        batches = Wanted(
            [name for name in names if name in known[NODES]] + ([] if cache is None else [cache.attribute]),
            edge_names,
            options.export,
            self.custom_cls,
        )
        plan = self.node_sampler.plan
        if options.export is Export.NATIVE:
            plan = SamplingPlan(plan.fanouts, plan.replacement, edge_ids=bool(edge_names))
        self._pipeline: Any = RankPipeline(
            features,
            self._graph,
            self.input_data,
            plan,
            self._seed,
            batches,
            isinstance(self._schedule, LocalSchedule),
            options.threads,
        )
        if options.feature_cache is not None:
            request = CacheRequest(options.feature_cache, plan, self._seed_share())
            comm.run_job(lambda: self._pipeline.fetch.make_cache(request))
        self._sizes = self._agreed_sizes()

    # What ranks must agree on ######################################################################

    @property
    def _comm(self) -> Communicator:
        return self._graph.comm

    def _arguments(self) -> dict[str, Any]:
        """What must be the same on every rank."""
        options, wanted = self._options, self._wanted
        return {
            **_described(self),
            "seed": wanted.seed,
            "schedule": wanted.schedule or "local",
            "macrobatch_size": options.macrobatch_size,
            "fetch_size": options.fetch_size,
            "prefetch": options.prefetch,
            "export": options.export.value,
            "attributes": options.reading.attributes,
            "node attributes": sorted(self._features.fields[NODES]),
            "edge attributes": sorted(self._features.fields[EDGES]),
            "feature_cache": options.feature_cache,
            "hybrid": self._graph.topology is not None,
            "aggregation cache": None
            if options.aggregation_cache is None
            else options.aggregation_cache.kind.value,
        }

    def _make_schedule(self) -> Schedule:
        comm, nodes = self._comm, self.input_data.node
        assert self.batch_size is not None
        shape = (self.batch_size, LastBatch.DROP if self.drop_last else LastBatch.KEEP, self._visit)
        if self._wanted.schedule == "global":
            return GlobalSchedule(nodes.numel(), comm.rank, comm.size, *shape)
        part = self._graph.part
        own, row = _rows_of(part.node, nodes)
        self._own_internal = torch.full_like(nodes, -1)
        self._own_internal[own] = row + part.first
        counts = comm.all_gather_json(own.numel())
        self._partition = comm.all_gather_json(digest_text(minibatch_key(part.node)))
        return LocalSchedule(own, counts, comm.rank, *shape)

    def _seed_share(self) -> SeedShare:
        """Of which nodes this rank's minibatches are made."""
        part, schedule = self._graph.part, self._schedule
        if isinstance(schedule, LocalSchedule):
            row, every = self._own_internal[schedule.own] - part.first, schedule.own.numel()
        else:
            (_, row), every = _rows_of(part.node, self.input_data.node), self.input_data.node.numel()
        assert self.batch_size is not None
        return SeedShare(row, min(1.0, self.batch_size / max(every, 1)), isinstance(schedule, LocalSchedule))

    def _agreed_sizes(self) -> Sizes:
        """B and F, the least of what the ranks choose that have seed nodes to measure with."""
        schedule = self._schedule
        steps = schedule.length()
        ahead = Ahead(self._options.prefetch, makers=1)
        sizes = choose_sizes(self._options, self._probe, steps, ahead, max_auto=max(1, steps))
        measured = not isinstance(schedule, LocalSchedule) or schedule.own.numel() > 0
        everyones = self._comm.all_gather_json([measured, sizes.macrobatch, sizes.fetch])
        chosen = [one for has_seeds, *one in everyones if has_seeds] or [one for _, *one in everyones]
        macrobatch, fetch = (min(column) for column in zip(*chosen, strict=True))
        return Sizes(macrobatch, min(fetch, macrobatch))

    def _probe(self) -> Probe | None:
        """Samples a few minibatches with all ranks; a rank without seed nodes measures nothing."""
        input_positions = (
            self._schedule.own
            if isinstance(self._schedule, LocalSchedule)
            else torch.arange(self.input_data.node.numel())
        )
        order = Order.KEYED if self._visit is Visit.SHUFFLED else Order.SEQUENTIAL
        count = input_positions.numel()
        chosen = probe_batches(count, self.batch_size, None, order) if count else []
        positions = [input_positions[torch.tensor(batch)] for batch in chosen]
        pipeline: RankPipeline = self._pipeline
        book, pipeline.book = pipeline.book, type(pipeline.book)()
        try:
            item = RankItem(0, -1, positions, self._internal_ids(positions))
            sampled = self._comm.run_job(lambda: pipeline.sample(item))
        finally:
            pipeline.book = book
        wide = pipeline.fetch.row_bytes
        most = max((one.num_nodes for one in sampled), default=0)
        attributes = most * wide if self._options.export is Export.PYG else 0
        # A remote row lies in the message that brought it and in the block.
        num_nodes = self._graph.num_nodes
        return probe_of(sampled, num_nodes, 2 * wide + 8, attributes) if sampled else None

    # Iterating #####################################################################################

    def __len__(self) -> int:
        """Minibatches that every rank hands out in an epoch."""
        return self._schedule.length()

    def __iter__(self) -> Iterator[Any]:
        run = self._position.upcoming
        run.num_batches, run.stride = self._schedule.end(run.skip), self._schedule.stride
        self._comm.run_job(lambda: self._comm.check_agreement({"epoch": run.epoch, "minibatch": run.skip}))
        epoch = self._schedule.epoch(self._seed, run.epoch, run.skip)
        items = self._items(run, epoch.positions, self._internal_ids(epoch.positions))
        self._position.begin()
        run.seeds = epoch.seeds
        return self._hand_out(run, map(self._finish, self._made(items)))

    def _items(self, run: Run, positions: list[Tensor], internal: list[Tensor]) -> Iterator[RankItem]:
        """The epoch's macrobatches."""
        size = self.sizes.macrobatch
        for number, first in enumerate(range(0, len(positions), size)):
            part = slice(first, first + size)
            yield RankItem(run.epoch, number, positions[part], internal[part])

    def _made(self, items: Iterator[RankItem]) -> Iterator[Any]:
        pipeline, fetch_size = self._pipeline, self.sizes.fetch
        if self._options.prefetch:
            make = functools.partial(pipeline.all_batches, fetch_size=fetch_size)
            return _ahead(self._comm, make, items, self._options.prefetch)
        return itertools.chain.from_iterable(pipeline.batches(item, fetch_size) for item in items)

    def _internal_ids(self, positions: list[Tensor]) -> list[Tensor]:
        """Of the seeds at these positions of the input; collective with the global schedule."""
        empty = torch.empty(0, dtype=torch.int64)
        every = torch.cat([empty, *positions])
        if isinstance(self._schedule, LocalSchedule):
            ids = self._own_internal[every]
        elif self._graph.topology is not None:
            ids = every  # nobody asks for them
        else:
            ids = self._comm.run_job(lambda: self._graph.internal_ids(self.input_data.node[every]))
        return list(ids.split([len(part) for part in positions]))

    def __call__(self, index: Tensor | list[int]) -> Any:
        """The minibatch of the seeds at these positions of the input, in the current epoch; collective, every
        rank with an index of its own."""
        position = torch.tensor(as_list(index), dtype=torch.int64)
        nodes = self.input_data.node[position]

        def job() -> Any:
            item = RankItem(self.epoch, -1, [position], [self._graph.internal_ids(nodes)])
            return self._pipeline.anywhere(item)

        (batch,) = self._comm.run_job(job)
        return self._finish(batch)

    def collate_fn(self, index: Tensor | list[int]) -> Any:
        return self(index)

    def _weight(self, batch: Any, run: Run) -> float:  # noqa: ARG002
        return self._comm.size / max(run.seeds[run.steps - 1], 1)

    # What it decided ###############################################################################

    @property
    def sizes(self) -> Sizes:
        """B and F, "auto" resolved when the loader was made: the least that any rank chose."""
        assert self._sizes is not None
        return self._sizes

    @property
    def steps_left(self) -> int:
        return self._schedule.length(self._position.upcoming.skip)

    @property
    def seed(self) -> int:
        """The key of shuffling and sampling, on every rank the same."""
        return self._seed

    def _reseed(self, seed: int) -> None:
        self._seed = seed
        self._pipeline.reseed(seed)

    def _settings(self) -> dict[str, Any]:
        schedule = self._wanted.schedule or "local"
        settings = {**_described(self), "schedule": schedule}
        if schedule == "local":  # another partition would give ranks other seed nodes
            settings |= {"ranks": self._comm.size, "partition": self._partition}
        return settings

    def _change_data(self) -> None:
        raise AttributeError("a loader over ranks reads the stores that it was made with; make another one")


def _rows_of(node: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Which positions of `wanted` [s] are of a part's nodes [n], and in which rows of the part these are."""
    order = None
    if not ops.is_ascending(node):  # a saved partition that another number of ranks has loaded
        node, order = node.sort()
    if not node.numel():
        return node, node
    row = torch.searchsorted(node, wanted)
    found = (node[row.clamp(max=node.numel() - 1)] == wanted).nonzero().view(-1)
    row = row[found]
    return found, row if order is None else order[row]


def _ahead(
    comm: Communicator, make: Callable[[Any], list[Any]], items: Iterator[Any], depth: int
) -> Iterator[Any]:
    """Batches of all items, ``depth`` macrobatches ahead of the consumer, each a job of the communicator.

    How many jobs were started depends on how many batches were asked for and on nothing else, and what was
    started runs to its end also when the iterator is closed: so ranks that stop at the same batch have made
    the same exchanges. Closing waits for that end, unless it is not the consumer who closes: the garbage
    collector runs on any thread, and may find a dropped iterator on the very thread that does its job.
    """
    pending: deque[Handle[list[Any]]] = deque()
    consumer = threading.current_thread()
    try:
        for item in items:
            pending.append(comm.start_job(functools.partial(make, item)))
            if len(pending) > depth:
                yield from _drained(pending)
        while pending:
            yield from _drained(pending)
    finally:
        if threading.current_thread() is consumer:
            for handle in pending:
                # Of a failure the next use of the communicator will tell.
                with contextlib.suppress(Exception):
                    handle.wait()


def _drained(pending: deque[Handle[list[Any]]]) -> Iterator[Any]:
    batches = pending[0].wait()
    pending.popleft()
    batches.reverse()
    while batches:
        yield batches.pop()


def _described(loader: RanksNeighborLoader) -> dict[str, Any]:
    """What decides, beside seed and epoch, which minibatches there are."""
    plan, nodes, graph = loader.node_sampler.plan, loader.input_data.node, loader._graph
    return {
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "num_seeds": nodes.numel(),
        "seeds_digest": digest_text(minibatch_key(nodes.long().contiguous())),
        "batch_size": loader.batch_size,
        "drop_last": loader.drop_last,
        "fanouts": list(plan.fanouts),
        "replacement": plan.replacement.value,
        "order": loader._visit.value,
    }
