"""The shell that all loaders of macrobatches share: iterating, sizes, states and statistics."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data._utils.pin_memory import pin_memory

from pyg_batchgnn.cache import AllNodes
from pyg_batchgnn.loader.arguments import worker_arguments
from pyg_batchgnn.loader.budget import PrefetchDepth, Sizes
from pyg_batchgnn.loader.embedding_steps import EmbeddingSteps
from pyg_batchgnn.loader.options import Export, LoaderOptions
from pyg_batchgnn.loader.order import as_positions
from pyg_batchgnn.loader.position import Position, Run
from pyg_batchgnn.loader.prefetch import prefetch as prefetched
from pyg_batchgnn.loader.resumable import Resumable
from pyg_batchgnn.loader.schedule import SeedStep
from pyg_batchgnn.loader.setup import Setup
from pyg_batchgnn.loader.sizing import resolve_sizes
from pyg_batchgnn.loader.stats import LoaderStats
from pyg_batchgnn.loader.work import NO_NUMBER, WorkItem, work_items
from pyg_batchgnn.loader.workers import MakeBatches, Stage, WorkerPool
from pyg_batchgnn.sample import PygOutput


class MacrobatchShell(Resumable, DataLoader[Any]):
    """The shell around the parts of a loader, whatever its minibatches begin with.

    A loader derives from it and from the class of PyG's that it stands for. Its constructor checks
    the arguments, lets PyG's constructor store them, and calls `_compose`.
    """

    transform: Callable[[Any], Any] | None
    filter_per_worker: bool | None
    _options: LoaderOptions

    def _compose(self, setup: Setup) -> None:
        """Makes the parts, once PyG's constructor has stored the arguments."""
        # PyG hands its own method over as an attribute, a reference cycle that keeps a dropped
        # loader's graph until the garbage collector runs. The method of the class serves as well.
        del self.__dict__["collate_fn"]
        self._position = Position()
        self._sizes: Sizes | None = None
        self._pool: WorkerPool | None = None
        self._parts = setup.compose(self)
        steps = EmbeddingSteps.of(self.data, self._options, self.num_workers)
        self._parts.pipeline.embedding = self._parts.calls.embedding = steps
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

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # a DataLoader's own has workers
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

        follower = self._parts.follower

        def count(batch: Any) -> Any:
            run.hand_out()
            run.weight = self._world.size / max(run.seeds[run.steps - 1], 1)
            if follower is not None:
                follower.begin_step(run.epoch, run.handed_out - 1, getattr(batch, "key", NO_NUMBER))
            return pin_memory(batch) if self.pin_memory and torch.cuda.is_available() else batch

        try:
            yield from map(count, made)
            if follower is not None:
                follower.end_epoch()
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
        if self._pool is None or self._pool.interrupted or not self.persistent_workers:
            make = MakeBatches(self._parts.pipeline, self.sizes.fetch, self.transform, stage)
            self._pool = WorkerPool(make, self.seed + epoch, **worker_arguments(self))
        made = self._pool.iterate(items)
        return made if stage is Stage.FINISH else map(self.filter_fn, made)

    @property
    def _finishes_in_workers(self) -> bool:
        """True if a worker hands over batches, and not samples."""
        return bool(self.filter_per_worker) or self._options.export is Export.NATIVE

    def _finish(self, batch: Any) -> Any:
        if self.transform is None:
            return batch
        transformed = self.transform(batch)
        if self._options.embedding is not None:
            self._options.embedding.follow(batch, transformed)
        return transformed

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
        calls = self._parts.calls
        (out,) = calls.outputs(calls.sample(self._called(index)))
        return out

    def filter_fn(self, out: PygOutput) -> Any:
        """Returns a sample with its attributes, transformed.

        The main process does so if workers only sample.
        """
        return self._finish(self._parts.pipeline.from_output(out))

    def __repr__(self) -> str:
        seeds, sampled = len(self.dataset), self._setup.plan.summary()  # type: ignore[arg-type]
        return f"{type(self).__name__}({seeds:,} seeds, {sampled}, batch_size={self.batch_size})"

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
            # Over ranks threads share the nodes of a hop.
            threads = 1 if self._world.collective else self._options.threads or torch.get_num_threads()
            return PrefetchDepth(self._options.prefetch, makers=1, sharing=threads)
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

    def all_nodes(self, memory_budget: int | str | None = None, progress: bool = False) -> AllNodes:
        """Returns all nodes of the graph, for the inference of all nodes; collective over ranks.

        The loader's fanouts, seed nodes and sizes do not matter. Over ranks each rank has the nodes
        that it owns.

        Args:
            memory_budget: bytes (or a text like "2GiB") that a piece takes, about; see
                `AggregationCache.build`.
            progress: True shows a progress bar.

        Raises:
            TypeError, ValueError: no node type has dense features ``x``.
        """
        return AllNodes(self._setup.graph(self.data), self._options.threads, memory_budget, progress)

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
