"""The drop-in for PyG's `NeighborLoader`."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.data._utils.pin_memory import pin_memory
from torch_geometric.data import Data, FeatureStore, GraphStore
from torch_geometric.loader import NeighborLoader
from torch_geometric.sampler import SamplerOutput

from pyg_batchgnn.cache import AggregationCache
from pyg_batchgnn.loader.arguments import SamplingRequest, count_seeds, is_partitioned, worker_arguments
from pyg_batchgnn.loader.budget import PrefetchDepth, Sizes
from pyg_batchgnn.loader.bytes import parse_bytes
from pyg_batchgnn.loader.export import GatheringExporter
from pyg_batchgnn.loader.local_setup import LocalSetup
from pyg_batchgnn.loader.options import (
    Export,
    LoaderOptions,
    Size,
    parse_export,
    refuse_what_does_not_go_together,
    refuse_what_is_to_come,
)
from pyg_batchgnn.loader.order import as_positions, with_keyed_shuffle
from pyg_batchgnn.loader.pipeline import outputs
from pyg_batchgnn.loader.position import Position, Run
from pyg_batchgnn.loader.prefetch import prefetch as prefetched
from pyg_batchgnn.loader.rank_setup import RankSetup
from pyg_batchgnn.loader.reading import Reading
from pyg_batchgnn.loader.resumable import Resumable
from pyg_batchgnn.loader.schedule import SeedStep
from pyg_batchgnn.loader.setup import Setup
from pyg_batchgnn.loader.sizing import resolve_sizes
from pyg_batchgnn.loader.stats import LoaderStats
from pyg_batchgnn.loader.work import NO_NUMBER, WorkItem, work_items
from pyg_batchgnn.loader.workers import MakeBatches, Stage, WorkerPool
from pyg_batchgnn.sample import PygNeighborSampler


class MacrobatchNeighborLoader(Resumable, NeighborLoader):
    """A `NeighborLoader` that makes its minibatches in macrobatches (BatchGNN, section 3).

    It takes what PyG's `NeighborLoader` takes and yields what it yields. A minibatch is a pure
    function of (graph, fanouts, seed, epoch, its seed nodes): the number of threads, workers and
    the sizes below change speed and memory, never a bit.

    Args:
        data: a homogeneous ``Data``, or a ``(FeatureStore, GraphStore)`` pair. With a
            ``(DistFeatureStore, DistGraphStore)`` pair the ranks make every macrobatch together:
            docs/reference/ranks.md says what is collective.
        num_neighbors: fanouts by hop, nearest the seeds first; -1 takes all neighbours.
        input_nodes: seed nodes as an index tensor, a boolean mask, or None for all nodes.
        replace: sample with replacement.
        neighbor_sampler: a `PygNeighborSampler`, whose graph, plan and seed are then used.
        macrobatch_size: B, the minibatches sampled together; "auto" fits the memory budget.
        fetch_size: F, native minibatches whose attributes are fetched together, at most B; "auto"
            likewise. PyG batches are gathered one by one, straight from ``data``, when they are
            asked for.
        memory_budget: bytes that the loader may hold at its peak, graph and features not counted;
            None is an eighth of what is free at construction. It decides what "auto" means, and
            nothing else.
        prefetch: macrobatches to prepare beside training, on one thread (0: none). Attributes are
            then read when the macrobatch is prepared.
        seed: key of shuffling and sampling; None draws one from torch's default generator.
        threads: at most this many threads work; torch's number if None. Worker processes use one
            each.
        export: "pyg" for ``Data`` batches, "native" for `Minibatch`.
        features: where the node attributes of native batches lie. "in_place": ``block`` holds the
            tensors of ``data`` themselves and ``row`` is ``node``. Nothing is copied, and a change
            to a tensor shows in batches that are made already. "copy": rows of the fetch group's
            nodes as they were when it was made. "auto": in place if every wanted attribute is a
            dense tensor in memory. Feature stores, mapped files and worker processes copy.
        attributes: names of the node attributes that native batches carry; None stands for all.
        schedule: over ranks, which minibatches a rank trains. "local" (default): those of the seed
            nodes that it owns. "global": every R-th of those that one process would make. None in
            one process.
        feature_cache: over ranks, bytes (or a text like "512MiB") that a rank may spend on rows of
            other hosts that its minibatches are most likely to need; they are fetched when the
            loader is made and never again. None: no cache, as always in one process.
        aggregation_cache: aggregates of the features that stand for the last hop: the last of
            ``num_neighbors`` is not sampled, the other hops are as they were, and native
            minibatches carry each node's aggregate beside its features
            (docs/concepts/aggregation-cache.md). Over ranks all have one.
        **kwargs: those of ``torch.utils.data.DataLoader``. If ``generator``, ``sampler`` or
            ``batch_sampler`` is given, it decides the order. Else ``shuffle`` is a keyed
            permutation by (seed, epoch).

    Raises:
        NotImplementedError: an option that is not supported yet: heterogeneous graphs, temporal,
            weighted, disjoint, bidirectional and induced sampling.
        TypeError, ValueError, IndexError: arguments that do not fit; the message gives value and
            remedy.

    Every ``iter(loader)`` starts the next epoch, the first is epoch 0; `set_epoch` overrides it;
    ``loader(index)`` uses the current one.
    """

    def __init__(
        self,
        data: Data | tuple[FeatureStore, GraphStore],
        num_neighbors: Any,
        input_nodes: Any = None,
        input_time: Tensor | None = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",  # noqa: ARG002  (ignored unless time_attr is given)
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[SamplerOutput], SamplerOutput] | None = None,
        is_sorted: bool = False,  # noqa: ARG002  (found out by looking)
        filter_per_worker: bool | None = None,
        neighbor_sampler: PygNeighborSampler | None = None,
        directed: bool = True,
        *,
        macrobatch_size: Size = "auto",
        fetch_size: Size = "auto",
        memory_budget: int | None = None,
        prefetch: int = 0,
        seed: int | None = None,
        threads: int | None = None,
        export: Literal["pyg", "native"] = "pyg",
        features: Literal["auto", "in_place", "copy"] = "auto",
        attributes: Sequence[str] | None = None,
        schedule: Literal["local", "global"] | None = None,
        feature_cache: int | str | None = None,
        aggregation_cache: AggregationCache | None = None,
        **kwargs: Any,
    ) -> None:
        refuse_what_is_to_come(subgraph_type, disjoint, input_time, time_attr, weight_attr, directed)
        self._options = LoaderOptions(
            macrobatch_size,
            fetch_size,
            memory_budget,
            prefetch,
            threads,
            parse_export(export),
            Reading.parse(features, attributes),
            parse_bytes(feature_cache) if isinstance(feature_cache, str) else feature_cache,
            aggregation_cache,
        )
        request = SamplingRequest(num_neighbors, replace, seed, neighbor_sampler, schedule)
        make = RankSetup if is_partitioned(data) else LocalSetup
        setup: Setup = make(data, request, self._options)
        kwargs = setup.dataloader_arguments(kwargs)
        refuse_what_does_not_go_together(self._options, kwargs, transform_sampler_output)
        input_nodes = setup.input_nodes(data, input_nodes)
        num_seeds = count_seeds(input_nodes, kwargs.get("input_id"), setup.num_nodes)
        # Past NeighborLoader's constructor, which would make a sampler of its own.
        super(NeighborLoader, self).__init__(
            data,
            setup.node_sampler,
            input_nodes,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=filter_per_worker,
            **with_keyed_shuffle(kwargs, num_seeds),
        )
        # PyG hands its own method over as an attribute, a reference cycle that keeps a dropped
        # loader's graph until the garbage collector runs. The method of the class serves as well.
        del self.__dict__["collate_fn"]
        self._position = Position()
        self._sizes: Sizes | None = None
        self._pool: WorkerPool | None = None
        self._parts = setup.compose(self)
        self._world, self._setup = setup.world, setup
        self._reseed(self.seed)
        if self._world.collective:
            self._sizes = self._choose_sizes()  # later not all ranks might ask

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out running workers, which belong to this process.

        PyG sends the loader to spawned ones.
        """
        return {**self.__dict__, "_pool": None}

    # Iterating ###################################################################################

    def __len__(self) -> int:
        """Returns the number of minibatches that every rank hands out in an epoch."""
        length = self._parts.schedule.length()
        return super().__len__() if length is None else length

    def __iter__(self) -> Iterator[Any]:
        run, schedule = self._position.upcoming, self._parts.schedule
        run.stride, run.num_batches = schedule.stride, schedule.end(run.skip)
        self._world.agree(lambda: {"epoch": run.epoch, "minibatch": run.skip})
        steps = self._parts.number(schedule.steps(run, self.seed))
        sizes = self.sizes
        self._position.begin()
        items = work_items(steps, run, sizes.macrobatch)
        made = self._from_workers(items, run.epoch) if self.num_workers > 0 else self._from_here(items)
        return self._hand_out(run, made)

    def _hand_out(self, run: Run, made: Iterator[Any]) -> Iterator[Any]:
        """Counts what the user takes, and keeps none of it."""

        def count(batch: Any) -> Any:
            run.hand_out()
            run.weight = self._world.size / max(run.seeds[run.steps - 1], 1)
            return pin_memory(batch) if self.pin_memory and torch.cuda.is_available() else batch

        try:
            yield from map(count, made)
        finally:
            del made  # or the traceback of a failed transform would keep threads and workers alive

    def _from_here(self, items: Iterator[WorkItem]) -> Iterator[Any]:
        make = functools.partial(self._parts.pipeline.batches, fetch_size=self.sizes.fetch)
        if self._options.prefetch == 0:
            one_by_one = functools.partial(make, now=self._world.now)
            return map(self._finish, itertools.chain.from_iterable(map(one_by_one, items)))

        def make_all(item: WorkItem) -> list[Any]:
            return list(make(item))

        executor = self._world.executor()
        return map(self._finish, prefetched(executor, make_all, items, self._options.prefetch))

    def _from_workers(self, items: Iterator[WorkItem], epoch: int) -> Iterator[Any]:
        stage = Stage.FINISH if self._finishes_in_workers else Stage.SAMPLE
        if self._pool is None or not self.persistent_workers:
            make = MakeBatches(self._parts.pipeline, self.sizes.fetch, self.transform, stage)
            self._pool = WorkerPool(make, self.seed + epoch, **worker_arguments(self))
        made = self._pool.iterate(items)
        return made if stage is Stage.FINISH else map(self.filter_fn, made)

    @property
    def _finishes_in_workers(self) -> bool:
        """True if a worker hands over batches, and not samples."""
        return bool(self.filter_per_worker) or self._options.export is Export.NATIVE

    def _finish(self, batch: Any) -> Any:
        return batch if self.transform is None else self.transform(batch)

    def __call__(self, index: Tensor | list[int]) -> Any:
        """Makes the minibatch of the seeds at these positions of the input, in the current epoch.

        Over ranks it is collective, every rank with an index of its own.
        """
        (batch,) = self._parts.calls.batches(self._called(index), 1, self._world.now)
        return self._finish(batch)

    def _called(self, index: Tensor | list[int]) -> WorkItem:
        steps = self._parts.number_any([SeedStep.of(as_positions(index))])
        return WorkItem(self.epoch, NO_NUMBER, list(steps))

    def collate_fn(self, index: Tensor | list[int]) -> Any:
        """Does what a worker of PyG's does.

        It makes the whole minibatch with `filter_per_worker`, else its sample.
        """
        if self._finishes_in_workers or self._world.collective:
            return self(index)
        (out,) = outputs(self._parts.calls.sample(self._called(index)))
        return out

    def filter_fn(self, out: SamplerOutput) -> Any:
        """Returns a sample with its attributes, transformed.

        The main process does so if workers only sample.
        """
        pipeline = self._parts.pipeline
        assert isinstance(pipeline.exporter, GatheringExporter)
        return self._finish(pipeline.counted(pipeline.exporter.from_output(out)))

    # What it decided and did #####################################################################

    @property
    def sizes(self) -> Sizes:
        """The sizes B and F. "auto" is resolved by sampling a few minibatches.

        One process does so at first use. Ranks do so when the loader is made, and take the least
        that any rank chose.
        """
        if self._sizes is None:
            self._sizes = self._choose_sizes()
        return self._sizes

    def _choose_sizes(self) -> Sizes:
        return resolve_sizes(self._options, self._parts, self, self._prefetch_depth(), self._world)

    def _prefetch_depth(self) -> PrefetchDepth:
        """Returns what is prepared beside the macrobatch in use, by a thread or by workers."""
        if self.num_workers == 0:
            return PrefetchDepth(self._options.prefetch, makers=1)
        return PrefetchDepth(self.num_workers * (self.prefetch_factor or 2), self.num_workers)

    @property
    def loss_weight(self) -> float:
        """The factor for the sum of the losses of the latest minibatch's seed nodes.

        With it every seed node of a step weighs the same. In one process ``F.cross_entropy(out, y,
        reduction="sum") * loader.loss_weight`` is the mean over the minibatch. Over ranks the
        factor is the number of ranks divided by the step's seed nodes on all of them.
        DistributedDataParallel's mean over ranks is then the mean over those seed nodes, and an
        empty minibatch adds zero.

        Raises:
            RuntimeError: no minibatch has been handed out yet.
        """
        weight = self._position.run.weight
        if weight is None:
            raise RuntimeError("loss_weight is that of the minibatch handed out last; there is none yet")
        return weight

    def stats(self) -> LoaderStats:
        """Returns nodes, edges, distinct nodes, bytes gathered and seconds by phase.

        They are those of the macrobatch made last, and of all in total. With prefetching the last
        one is ahead of what was handed out.
        """
        return self._parts.pipeline.book.snapshot()

    @property
    def data(self) -> Any:
        """The object that attributes are read from. The graph is that of the construction."""
        return self._data

    @data.setter
    def data(self, data: Any) -> None:
        self._data = data
        if hasattr(self, "_setup"):
            self._setup.change_data(self._parts.pipeline, self)
            self._pool = None  # persistent workers read the old one
