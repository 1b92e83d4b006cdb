"""The drop-in for PyG's `NeighborLoader`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.data._utils.pin_memory import pin_memory
from torch_geometric.data import Data, FeatureStore, GraphStore
from torch_geometric.loader import NeighborLoader
from torch_geometric.sampler import SamplerOutput

from pyg_batchgnn.cache import AggregationCache
from pyg_batchgnn.loader.arguments import (
    Sampling,
    count_seeds,
    has_edge_attributes,
    is_spread,
    sampler_for,
    seed_nodes,
    worker_arguments,
)
from pyg_batchgnn.loader.beside import cached_tables
from pyg_batchgnn.loader.budget import Ahead, Sizes, choose_sizes, measure, probe_batches
from pyg_batchgnn.loader.bytes import parse_bytes
from pyg_batchgnn.loader.iterate import iterate
from pyg_batchgnn.loader.options import (
    Export,
    LoaderOptions,
    Size,
    parse_export,
    refuse_what_does_not_go_together,
    refuse_what_is_to_come,
)
from pyg_batchgnn.loader.order import WorkItem, as_list, work_items
from pyg_batchgnn.loader.pipeline import Pipeline, outputs
from pyg_batchgnn.loader.position import Position, Run
from pyg_batchgnn.loader.reading import Reading
from pyg_batchgnn.loader.resumable import Resumable
from pyg_batchgnn.loader.schedule import batches_of, num_batches_of, order_of, with_keyed_shuffle
from pyg_batchgnn.loader.stats import LoaderStats
from pyg_batchgnn.loader.workers import MakeBatches, Stage, WorkerPool
from pyg_batchgnn.sample import Layout, MacrobatchSampler, PygNeighborSampler


class MacrobatchNeighborLoader(Resumable, NeighborLoader):
    """Neighbour sampling for minibatch training: PyG's `NeighborLoader`, made in macrobatches (BatchGNN,
    section 3).

    Takes what `NeighborLoader` takes and yields what it yields. A minibatch is a pure function of (graph,
    fanouts, seed, epoch, its seed nodes): the number of threads, workers and the sizes below change speed
    and memory, never a bit.

    Args:
        data: a homogeneous ``Data``, or a ``(FeatureStore, GraphStore)`` pair. With a ``(DistFeatureStore,
            DistGraphStore)`` pair the ranks make every macrobatch together: docs/reference/ranks.md
            says what is collective.
        num_neighbors: fanouts by hop, nearest the seeds first; -1 takes all neighbours.
        input_nodes: seed nodes as an index tensor, a boolean mask, or None for all nodes.
        replace: sample with replacement.
        neighbor_sampler: a `PygNeighborSampler`, whose graph, plan and seed are then used.
        macrobatch_size: B, minibatches sampled together; "auto" fits the memory budget.
        fetch_size: F, native minibatches whose attributes are fetched together, at most B; "auto" likewise.
            PyG batches are gathered one by one, straight from ``data``, when they are asked for.
        memory_budget: bytes that the loader may hold at its peak, graph and features not counted; None: an
            eighth of what is free at construction. Decides what "auto" means, and nothing else.
        prefetch: macrobatches to prepare beside training, on one thread (0: none). Attributes are then read
            when the macrobatch is prepared.
        seed: key of shuffling and sampling; None draws one from torch's default generator.
        threads: at most so many threads; torch's own number where None. Worker processes use one each.
        export: "pyg" for ``Data`` batches, "native" for `Minibatch`.
        features: where the node attributes of native batches lie. "in_place": ``block`` holds the tensors of
            ``data`` themselves and ``row`` is ``node``; nothing is copied, and a change to a tensor shows in
            batches that are made already. "copy": rows of the fetch group's nodes as they were when it was
            made. "auto": in place where every wanted attribute is a dense tensor in memory; copied from
            feature stores, files that are mapped, and in worker processes.
        attributes: names of the node attributes that native batches carry; None: all.
        schedule: over ranks, whose minibatches a rank trains: "local" (default), of the seed nodes that it
            owns; "global", every R-th of those that one process would make. None in one process.
        feature_cache: over ranks, bytes (or a text like "512MiB") that a rank may spend on rows of other
            hosts that its minibatches are most likely to need; they are fetched when the loader is made and
            never again. None: no cache, which is all that one process can have.
        aggregation_cache: aggregates of the features that stand for the last hop: the last of
            ``num_neighbors`` is not sampled, the other hops are as they were, and native minibatches carry
            each node's aggregate beside its features
            (docs/concepts/aggregation-cache.md). Over ranks all have one.
        **kwargs: those of ``torch.utils.data.DataLoader``. Where ``generator``, ``sampler`` or
            ``batch_sampler`` is given, it decides the order; else ``shuffle`` is a keyed permutation by
            (seed, epoch).

    Raises:
        NotImplementedError: an option that is still to come: heterogeneous graphs, temporal, weighted,
            disjoint, bidirectional and induced sampling.
        TypeError, ValueError, IndexError: arguments that do not fit; the message gives value and remedy.

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
        temporal_strategy: str = "uniform",  # noqa: ARG002  (only of meaning with time_attr)
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
        kwargs = self._allowed(kwargs)
        refuse_what_does_not_go_together(self._options, kwargs, transform_sampler_output)
        self._position = Position()
        self._sizes: Sizes | None = None
        self._pool: WorkerPool | None = None
        wanted = Sampling(num_neighbors, replace, seed, neighbor_sampler, schedule)
        sampler, input_nodes, kwargs = self._prepare(data, wanted, input_nodes, kwargs)
        super().__init__(
            data,
            num_neighbors,
            input_nodes,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=filter_per_worker,
            neighbor_sampler=sampler,
            **kwargs,
        )
        # PyG hands its own method over as an attribute, a reference cycle that keeps a dropped loader's graph
        # until the garbage collector runs. The method of the class serves as well.
        del self.__dict__["collate_fn"]
        self._begin()

    def _allowed(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Those arguments of DataLoader that mean something here."""
        return kwargs

    def _prepare(
        self, data: Any, wanted: Sampling, input_nodes: Any, kwargs: dict[str, Any]
    ) -> tuple[Any, Any, dict[str, Any]]:
        """What PyG's constructor is to get: sampler, seed nodes and the arguments of DataLoader."""
        if wanted.schedule is not None:
            raise ValueError(
                f"schedule={wanted.schedule!r} is for graphs that are spread over ranks: give "
                f"(DistFeatureStore, DistGraphStore) as data"
            )
        if self._options.feature_cache is not None:
            raise ValueError(
                "feature_cache keeps rows of other hosts, of which one process knows none: leave it out, or "
                "give (DistFeatureStore, DistGraphStore) as data"
            )
        sampler = sampler_for(
            data, wanted.num_neighbors, wanted.replace, wanted.seed, self._options.threads, wanted.given
        )
        input_nodes = seed_nodes(data, input_nodes, sampler.macrobatch.graph.num_nodes)
        num_seeds = count_seeds(input_nodes, kwargs.get("input_id"), sampler.macrobatch.graph.num_nodes)
        return sampler, input_nodes, with_keyed_shuffle(kwargs, num_seeds, sampler.macrobatch.seed)

    def _begin(self) -> None:
        """What is left of the construction when PyG's part is done."""
        cache = self._options.aggregation_cache
        self._pipeline = Pipeline(
            self.data,
            self.input_data,
            self._macrobatch_sampler(),
            self._options.reading,
            {} if cache is None else cached_tables(cache, self.data),
            self.transform_sampler_output,
            self.custom_cls,
        )
        if self._options.export is Export.NATIVE:
            self._pipeline.tables()  # refuses what cannot be read before anything is sampled

    def __new__(cls, data: Any = None, *_args: Any, **_kwargs: Any) -> MacrobatchNeighborLoader:
        """A loader over ranks where the graph is spread over them."""
        if cls is MacrobatchNeighborLoader and is_spread(data):
            from pyg_batchgnn.loader.over_ranks import RanksNeighborLoader

            return super().__new__(RanksNeighborLoader)
        return super().__new__(cls)

    def __getstate__(self) -> dict[str, Any]:
        """Without running workers, which belong to this process. PyG sends the loader to spawned ones."""
        return {**self.__dict__, "_pool": None}

    # Iterating ######################################################################################

    def __iter__(self) -> Iterator[Any]:
        run = self._position.upcoming
        batches = batches_of(self, run)
        sizes = self.sizes
        self._position.begin()
        items = work_items(batches, run.epoch, sizes.macrobatch, run.skip)
        made = self._from_workers(items, run.epoch) if self.num_workers > 0 else self._from_here(items)
        return self._hand_out(run, made)

    def _hand_out(self, run: Run, made: Iterator[Any]) -> Iterator[Any]:
        """Counts what the user takes, and keeps none of it."""

        def count(batch: Any) -> Any:
            run.hand_out()
            run.weight = self._weight(batch, run)
            return pin_memory(batch) if self.pin_memory and torch.cuda.is_available() else batch

        try:
            yield from map(count, made)
        finally:
            del made  # or the traceback of a failed transform would keep threads and workers alive

    def _from_here(self, items: Iterator[WorkItem]) -> Iterator[Any]:
        options = self._options
        make = functools.partial(self._pipeline.batches, export=options.export, fetch_size=self.sizes.fetch)
        return map(self._finish, iterate(make, items, options.prefetch))

    def _from_workers(self, items: Iterator[WorkItem], epoch: int) -> Iterator[Any]:
        export = self._options.export
        stage = Stage.FINISH if self.filter_per_worker or export is Export.NATIVE else Stage.SAMPLE
        if self._pool is None or not self.persistent_workers:
            make = MakeBatches(self._pipeline, export, self.sizes.fetch, self.transform, stage)
            self._pool = WorkerPool(make, self.seed + epoch, **worker_arguments(self))
        made = self._pool.iterate(items)
        return made if stage is Stage.FINISH else map(self.filter_fn, made)

    def _finish(self, batch: Any) -> Any:
        return batch if self.transform is None else self.transform(batch)

    def __call__(self, index: Tensor | list[int]) -> Any:
        """The minibatch of the seeds at these positions of the input, in the current epoch."""
        item = WorkItem(self.epoch, 0, [as_list(index)])
        (batch,) = self._pipeline.batches(item, self._options.export, 1)
        return self._finish(batch)

    def collate_fn(self, index: Tensor | list[int]) -> Any:
        """What a worker of PyG's does: the whole minibatch with `filter_per_worker`, else its sample."""
        if self.filter_per_worker or self._options.export is Export.NATIVE:
            return self(index)
        (out,) = outputs(self._pipeline.sample(WorkItem(self.epoch, 0, [as_list(index)])))
        return out

    def filter_fn(self, out: SamplerOutput) -> Any:
        """A sample with its attributes, transformed: what the main process does where workers only sample."""
        return self._finish(self._pipeline.to_pyg(out))

    # What it decided and did ########################################################################

    @property
    def sizes(self) -> Sizes:
        """B and F, "auto" resolved at first use by sampling a few minibatches."""
        if self._sizes is None:
            num_batches = num_batches_of(self)
            probes = probe_batches(self.input_data.node.numel(), self.batch_size, num_batches, order_of(self))
            options = self._options
            probe = functools.partial(measure, self._pipeline, probes, options.export)
            self._sizes = choose_sizes(options, probe, num_batches, self._ahead())
        return self._sizes

    def _ahead(self) -> Ahead:
        """What a prefetching thread or worker processes prepare beside the macrobatch in use."""
        if self.num_workers == 0:
            return Ahead(self._options.prefetch, makers=1)
        return Ahead(self.num_workers * (self.prefetch_factor or 2), self.num_workers)

    @property
    def loss_weight(self) -> float:
        """What to multiply the sum of the losses of the latest minibatch's seed nodes by, so that every seed
        node of a step weighs the same.

        ``loss = F.cross_entropy(out, y, reduction="sum") * loader.loss_weight`` is the mean over the
        minibatch in one process. Over ranks it is the number of ranks divided by the step's seed nodes on all
        of them, so that DistributedDataParallel's mean over ranks is the mean over those seed nodes; an empty
        minibatch adds zero.

        Raises:
            RuntimeError: no minibatch has been handed out yet.
        """
        weight = self._position.run.weight
        if weight is None:
            raise RuntimeError("loss_weight is that of the minibatch handed out last; there is none yet")
        return weight

    def _weight(self, batch: Any, run: Run) -> float | None:  # noqa: ARG002
        size = getattr(batch, "batch_size", None)
        return 1.0 / max(size, 1) if isinstance(size, int) else None

    def stats(self) -> LoaderStats:
        """Nodes, edges, distinct nodes, bytes gathered and seconds by phase, of the macrobatch made last and
        of all in total; with prefetching that is ahead of what was handed out."""
        return self._pipeline.book.snapshot()

    @property
    def data(self) -> Any:
        """What attributes are read from, when a batch is made. The graph is that of the construction."""
        return self._data

    @data.setter
    def data(self, data: Any) -> None:
        self._data = data
        if hasattr(self, "_pipeline"):
            self._change_data()

    def _change_data(self) -> None:
        if self._options.aggregation_cache is not None:
            raise AttributeError(
                "the aggregation cache is of the data that the loader was made with; make another loader"
            )
        self._pipeline.source = self._pipeline.source_of(self.data)
        self._pool = None  # persistent workers read the old one

    def _macrobatch_sampler(self) -> MacrobatchSampler:
        """For native batches 32-bit CSC, with edge ids only where there is an edge attribute for them."""
        made = self.node_sampler.macrobatch
        if self._options.export is Export.PYG:
            return made
        plan = dataclasses.replace(made.plan, edge_ids=has_edge_attributes(self.data))
        if self._options.aggregation_cache is not None:
            plan = plan.without_last_hop()
        return MacrobatchSampler(made.graph, plan, made.seed, made.threads, Layout.CSC)
