"""The shell that all loaders of macrobatches share: iterating, sizes, states and statistics."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data._utils.pin_memory import pin_memory

from pyg_batchgnn.loader.budget import (
    PROBES,
    LoaderProbe,
    PrefetchDepth,
    Sizes,
    choose_sizes,
    probe_batches,
    probe_of,
)
from pyg_batchgnn.loader.options import Export, LoaderOptions
from pyg_batchgnn.loader.pipeline import EmbeddingSteps
from pyg_batchgnn.loader.prefetch import prefetch as prefetched
from pyg_batchgnn.loader.schedule import (
    NO_NUMBER,
    KeyedShuffleSampler,
    Order,
    Position,
    Run,
    SeedStep,
    WorkItem,
    as_positions,
    check_state,
    check_states,
    generator_states,
    order_of,
    set_generators,
    with_keyed_shuffle,
    work_items,
)
from pyg_batchgnn.loader.setup import Setup
from pyg_batchgnn.loader.stats import LoaderStats
from pyg_batchgnn.sample import PygOutput, SampledMinibatch, as_integer

if TYPE_CHECKING:
    from pyg_batchgnn.cache import AllNodes
    from pyg_batchgnn.loader.disk_sizes import DiskForecast, DiskProbe
    from pyg_batchgnn.loader.on_disk import LookAhead
    from pyg_batchgnn.loader.workers import WorkerPool


#: Seven numbers and a mark.
_TOKEN_BYTES = 57


class MacrobatchShell(DataLoader[Any]):
    """The base of all loaders of macrobatches, of nodes and of links. A loader derives from it and
    from PyG's class. Its constructor checks the arguments and calls `_begin`."""

    _epochs: int | None = None
    transform: Callable[[Any], Any] | None
    filter_per_worker: bool | None
    _options: LoaderOptions
    _setup: Setup

    @property
    def epochs(self) -> int | None:
        """The number of epochs that will be iterated, None if unknown. Rows in files are not read
        for epochs beyond it. It can be assigned at any time."""
        return self._epochs

    @epochs.setter
    def epochs(self, epochs: int | None) -> None:
        if epochs is not None and (as_integer(epochs) is None or epochs < 1):
            raise ValueError(f"epochs must be an integer of at least 1, or None, got {epochs!r}")
        self._epochs = epochs

    def _begin(
        self,
        base: Any,
        setup: Setup,
        data: Any,
        inputs: Mapping[str, Any],
        kwargs: dict[str, Any],
        transform: Callable[[Any], Any] | None,
        transform_sampler_output: Callable[[Any], Any] | None,
        filter_per_worker: bool | None,
    ) -> None:
        """Composes the loader. Calls the constructor of ``base``, not PyG's loader's, which would
        make its own sampler. ``inputs``: the arguments of ``base`` about nodes or links."""
        base.__init__(
            self,
            data,
            setup.node_sampler,
            **inputs,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=filter_per_worker,
            **with_keyed_shuffle(kwargs, len(setup.inputs)),
        )
        # PyG hands its own method over as an attribute, a reference cycle that keeps a dropped
        # loader's graph until the garbage collector runs. The method of the class serves as well.
        del self.__dict__["collate_fn"]
        self._position = Position()
        self._sizes: Sizes | None = None
        self._pool: WorkerPool | None = None
        self._options, self._world, self._stage = setup.options, setup.world, setup.stage
        setup.compose(self)
        steps = EmbeddingSteps.of(self.data, self._options, self.num_workers)
        setup.pipeline.embedding = setup.calls.embedding = steps
        setup.pipeline.tokens = setup.calls.tokens = self._options.tokens
        self._setup = setup
        self._reseed(self.seed)
        if self._world.collective:
            self._sizes = self._choose_sizes()  # later not all ranks might ask

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out running workers. PyG sends the loader to spawned ones."""
        return {**self.__dict__, "_pool": None}

    # Epochs and states ############################################################################

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next ``iter(loader)`` and of ``loader(index)``."""
        self._position.set_epoch(epoch)

    @property
    def epoch(self) -> int:
        """The epoch last set: by an iterator, by `set_epoch` or by a loaded state."""
        return self._position.run.epoch

    @property
    def upcoming_epoch(self) -> int:
        """The epoch of the next ``iter(loader)``."""
        return self._position.upcoming.epoch

    @property
    def steps_left(self) -> int:
        """The number of minibatches of the next ``iter(loader)``: less than ``len(loader)`` after
        `load_state_dict` in the middle of an epoch. Raises TypeError if it is not known."""
        left = self._setup.schedule.length(self._position.upcoming.skip)
        if left is None:
            raise TypeError(
                "the loader's batch_sampler has no len(): how many minibatches are left is unknown"
            )
        return left

    @property
    def seed(self) -> int:
        """The key of shuffling and sampling, the same on every rank."""
        return self._setup.pipeline.sampler.seed

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of the latest iterator, as a dict that JSON can hold."""
        return self._position.state_dict(self.seed, self._settings(), generator_states(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Lets the next ``iter(loader)`` hand out exactly the minibatches that were left. The user
        restores a sampler with a state of its own, other than a ``generator`` attribute; that it
        draws the same minibatches is checked when iterating begins. Raises `ValueError`, with the
        setting that differs, if the state is of another loader."""
        check_state(state, self._settings())
        if state["drawn"] is not None:  # the first state is that of torch's default generator
            check_states(self, state["drawn"]["states"][1:])
        set_generators(self, state["generators"])
        self._position.load_state_dict(state)
        if state["seed"] != self.seed:
            self._reseed(state["seed"])
            self._pool = None  # persistent workers sample with the old one

    def _reseed(self, seed: int) -> None:
        loader: Any = self
        for sampler in self._setup.samplers:
            sampler.seed = seed
        if isinstance(loader.sampler, KeyedShuffleSampler):
            loader.sampler.seed = seed

    def _settings(self) -> dict[str, Any]:
        loader: Any = self
        return {**self._setup.shape(loader), **self._setup.schedule.settings()}

    # Iterating ###################################################################################

    def __len__(self) -> int:
        length = self._setup.schedule.length()
        return super().__len__() if length is None else length

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # a DataLoader's own has workers
        run, schedule = self._position.upcoming, self._setup.schedule
        run.stride, run.num_batches = schedule.stride, schedule.end(run.skip)
        self._world.agree(lambda: {"epoch": run.epoch, "minibatch": run.skip})
        steps = self._setup.number(schedule.steps(run, self.seed))
        sizes = self.sizes
        self._position.begin()
        items = work_items(steps, run, sizes.macrobatch)
        made = self._from_workers(items, run.epoch) if self.num_workers > 0 else self._from_here(run, items)
        return self._hand_out(run, made)

    def _hand_out(self, run: Run, made: Iterator[Any]) -> Iterator[Any]:
        """Yields and counts batches, without keeping a reference to them."""

        follower, look = self._setup.follower, self._setup.pipeline.look_ahead

        def count(batch: Any) -> Any:
            run.hand_out()
            run.weight = self._world.size / max(run.seeds[run.steps - 1], 1)
            if follower is not None:
                follower.begin_step(run.epoch, run.handed_out - 1, getattr(batch, "key", NO_NUMBER))
            pins = self.pin_memory and self._stage is None and torch.cuda.is_available()
            return pin_memory(batch) if pins else batch

        try:
            yield from map(count, made)
            if follower is not None:
                follower.end_epoch()
        finally:
            if look is not None:
                look.rows.rest()
            del made  # or the traceback of a failed transform would keep threads and workers alive

    def _from_here(self, run: Run, items: Iterator[WorkItem]) -> Iterator[Any]:
        fetch_size, pipeline = self.sizes.fetch, self._setup.pipeline
        make = functools.partial(pipeline.batches, fetch_size=fetch_size)
        is_known = order_of(self) is not Order.DRAWN and run.skip == 0
        following = functools.partial(self._items_of, run.epoch + 1) if is_known else None
        is_last = self.epochs is not None and run.epoch + 1 >= self.epochs
        items = pipeline.ahead(items, fetch_size, self._options.lookahead, following, is_last)
        stage, depth = self._stage, self._options.prefetch
        if stage is not None:  # ranks make macrobatches in one order, so that users alone set the pace
            ranks = self._world.executor() if self._world.collective else None
            return map(self._finish, stage.deliver(pipeline, items, fetch_size, ranks))
        if depth == 0:
            one_by_one = functools.partial(make, now=self._world.now)
            return map(self._finish, itertools.chain.from_iterable(map(one_by_one, items)))

        executor = self._world.executor()
        return map(self._finish, prefetched(executor, lambda item: list(make(item)), items, depth))

    def _items_of(self, epoch: int) -> Iterator[WorkItem]:
        """Returns the macrobatches of a whole epoch."""
        run = Run(epoch)
        steps = self._setup.number(self._setup.schedule.steps(run, self.seed))
        return work_items(steps, run, self.sizes.macrobatch)

    def _from_workers(self, items: Iterator[WorkItem], epoch: int) -> Iterator[Any]:
        from pyg_batchgnn.loader.workers import OF_WORKERS, MakeBatches, Stage, WorkerPool

        stage = Stage.FINISH if self._finishes_in_workers else Stage.SAMPLE
        if self._pool is None or self._pool.interrupted or not self.persistent_workers:
            make = MakeBatches(self._setup.pipeline, self.sizes.fetch, self.transform, stage)
            given = {name: getattr(self, name) for name in ("num_workers", *OF_WORKERS)}
            self._pool = WorkerPool(make, self.seed + epoch, **given)
        made = self._pool.iterate(items)
        return made if stage is Stage.FINISH else map(self.filter_fn, made)

    @property
    def _finishes_in_workers(self) -> bool:
        return bool(self.filter_per_worker) or self._options.export is Export.NATIVE

    def _finish(self, batch: Any) -> Any:
        if self._stage is not None:
            batch = self._stage.receive(batch)
        if self.transform is None:
            return batch
        transformed = self.transform(batch)
        if self._options.embedding is not None:
            self._options.embedding.follow(batch, transformed)
        return transformed

    def __call__(self, index: Tensor | list[int]) -> Any:
        """Makes the minibatch of the seeds at positions ``index`` of the input, in the current
        epoch. Over ranks it is collective, each rank with its own ``index``."""
        (batch,) = self._setup.calls.batches(self._called(index), 1, self._world.now)
        return self._finish(batch)

    def _called(self, index: Tensor | list[int]) -> WorkItem:
        steps = self._setup.number_any([SeedStep.of(as_positions(index))])
        return WorkItem(self.epoch, NO_NUMBER, list(steps))

    def collate_fn(self, index: Tensor | list[int]) -> Any:
        """As PyG's worker: makes the whole minibatch with `filter_per_worker`, else a sample."""
        if self._finishes_in_workers or self._world.collective or self._stage is not None:
            return self(index)
        calls = self._setup.calls
        (out,) = calls.outputs(calls.sample(self._called(index)))
        return out

    def filter_fn(self, out: PygOutput) -> Any:
        """Makes the batch of a sample, in the main process if workers only sample."""
        return self._finish(self._setup.pipeline.from_output(out))

    def __repr__(self) -> str:
        seeds, sampled = len(self.dataset), self._setup.plan.summary()  # type: ignore[arg-type]
        return f"{type(self).__name__}({seeds:,} seeds, {sampled}, batch_size={self.batch_size})"

    # What it decided and did #####################################################################

    @property
    def sizes(self) -> Sizes:
        """The sizes B and F. "auto" is resolved by sampling a few minibatches: in one process at
        the first use, over ranks when the loader is made, to the least of all ranks."""
        if self._sizes is None:
            self._sizes = self._choose_sizes()
        return self._sizes

    def _choose_sizes(self) -> Sizes:
        """Resolves "auto" to the least B and F of all processes with seeds to measure."""
        options = self._options if self._stage is None else self._stage.without_pinned(self._options)
        schedule, world, look = self._setup.schedule, self._world, self._setup.pipeline.look_ahead
        if look is not None:
            return self._sizes_on_disk(options, look)
        is_automatic = "auto" in (options.macrobatch_size, options.fetch_size)
        sampled = self._probe(PROBES) if is_automatic else []
        probe, steps = self._loader_probe(sampled) if sampled else None, schedule.length()
        sizes = choose_sizes(options, probe, steps, self._prefetch_depth(), world.max_macrobatch(steps))
        everyones = world.gather([probe is not None, sizes.macrobatch, sizes.fetch])
        chosen = [one for measured, *one in everyones if measured] or [one for _, *one in everyones]
        macrobatch, fetch = (min(column) for column in zip(*chosen, strict=True))
        return Sizes(macrobatch, min(fetch, macrobatch))

    def _sizes_on_disk(self, options: LoaderOptions, look: LookAhead) -> Sizes:
        """Chooses B, F and the memory for rows of files together."""
        from pyg_batchgnn.loader import disk_sizes

        probe = self._disk_probe(look, disk_sizes.PROBES)
        if probe is None:
            return Sizes(1, 1)
        budget = look.budget - 2 * look.string_bytes  # of an epoch and the next
        look.forecast = forecast = disk_sizes.choose_disk_sizes(options, probe, budget)
        look.rows.set_capacity(forecast.resident_bytes, probe.window(forecast.sizes))
        return forecast.sizes

    def _disk_probe(self, look: LookAhead, samples: int) -> DiskProbe | None:
        from pyg_batchgnn.loader.disk_sizes import DiskProbe

        sampled, steps = self._probe(samples), self._setup.schedule.length()
        if not sampled:
            return None
        return DiskProbe.of(self._loader_probe(sampled), look.rows, sampled, steps, self._prefetch_depth())

    def _loader_probe(self, sampled: list[SampledMinibatch]) -> LoaderProbe:
        pipeline, cost = self._setup.pipeline, self._setup.cost(sampled)
        tokens = (self._options.tokens or 0) * _TOKEN_BYTES * (self.batch_size or 1)
        cost = replace(cost, batch=cost.batch + tokens)
        return probe_of(sampled, pipeline.num_nodes, cost, pipeline.reading_bytes)

    def _probe(self, most: int) -> list[SampledMinibatch]:
        """Samples up to ``most`` minibatches to measure; none without seeds."""
        schedule, pipeline = self._setup.schedule, self._setup.pipeline
        count = schedule.num_candidates
        arguments = count, self.batch_size, schedule.length(), order_of(self), most
        chosen = probe_batches(*arguments) if count else []
        steps = self._setup.number([SeedStep.of(schedule.candidates(torch.tensor(one))) for one in chosen])
        item = WorkItem(0, NO_NUMBER, list(steps))
        return self._world.now(lambda: pipeline.sample_uncounted(item))

    def _prefetch_depth(self) -> PrefetchDepth:
        if self.num_workers == 0:
            ahead = self._options.prefetch if self._stage is None else self._stage.ahead
            # Over ranks threads share the nodes of a hop.
            threads = 1 if self._world.collective else self._options.threads or torch.get_num_threads()
            return PrefetchDepth(ahead, makers=1, sharing=threads)
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
        """Returns nodes, edges, distinct nodes, bytes gathered and seconds by phase, of the
        macrobatch made last (which prefetching makes ahead) and in total."""
        found = self._setup.pipeline.book.snapshot()
        return found if self._stage is None else replace(found, device=self._stage.memory())

    def disk_forecast(self, samples: int = 128) -> DiskForecast | None:
        """Predicts the reads from files of an epoch at the loader's sizes; in one process.

        The largest file is read for a second to measure its disk. ``samples``: minibatches to
        sample for the prediction; more are slower and more exact. Returns None if all attributes
        are in memory.

        Raises:
            OSError: reading failed.
        """
        assert self.sizes  # which decide whether anything is read
        look = self._setup.pipeline.look_ahead
        if look is None or look.forecast is None:
            return None
        known = look.forecast
        probe = self._disk_probe(look, samples)
        found = (probe and probe.forecast(known.sizes, known.resident_bytes)) or known
        return replace(found, bytes_per_second=look.rows.bytes_per_second())

    def all_nodes(
        self,
        memory_budget: int | str | None = None,
        progress: bool = False,
        scratch: str | Path | None = None,
    ) -> AllNodes:
        """Returns all nodes of the graph, for the inference of all nodes; collective over ranks.

        The loader's fanouts, seed nodes and sizes do not matter. Over ranks each rank has the nodes
        that it owns. ``memory_budget``: about how many bytes (or a text like "2GiB") the inference
        may take. ``progress``: True shows a progress bar for each layer. ``scratch``: the folder of
        rows that do not fit memory; see `AllNodes`.

        Raises:
            TypeError, ValueError: no node type has dense features ``x``, or there is no such
                folder.
        """

        from pyg_batchgnn.cache import AllNodes

        graph, threads = self._setup.inference_graph(self.data), self._options.threads
        return AllNodes(graph, threads, memory_budget, progress, scratch)

    @property
    def data(self) -> Any:
        """The object that attributes are read from. The graph stays the one at construction."""
        return self._data

    @data.setter
    def data(self, data: Any) -> None:
        self._data = data
        if hasattr(self, "_setup"):
            self._setup.change_data(self)
            if self._setup.pipeline.look_ahead is not None:
                self._sizes = None  # they give the new tables' rows their memory
            self._pool = None  # persistent workers read the old one
