"""The way from a work item to batches: sample, fetch, export.

The same code runs in one process and over ranks, on the user's thread, on a thread that prefetches
and in worker processes.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch
from torch import Tensor
from torch.utils.data import get_worker_info
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler.base import SubgraphType

from pyg_batchgnn import ops
from pyg_batchgnn.fetch import Fetcher, FetchGroup
from pyg_batchgnn.loader.filter import Gatherer, edge_index_of
from pyg_batchgnn.loader.link_inputs import Inputs
from pyg_batchgnn.loader.node_inputs import StepInputs
from pyg_batchgnn.loader.options import LoaderOptions, is_partitioned
from pyg_batchgnn.loader.prefetch import drain
from pyg_batchgnn.loader.schedule import WorkItem
from pyg_batchgnn.loader.source import Source
from pyg_batchgnn.loader.stats import LoaderCounters, LoaderStats, disk_counts, edge_counts, sampling_counters
from pyg_batchgnn.sample import (
    ENDS,
    AttributeRows,
    MacrobatchSampler,
    MacrobatchSeeds,
    Minibatch,
    Names,
    PygForm,
    PygOutput,
    SampledMinibatch,
    SampleInfo,
    Sampler,
    remember,
)
from pyg_batchgnn.types import Group

if TYPE_CHECKING:
    from pyg_batchgnn.comm import Communicator
    from pyg_batchgnn.embed import Embedding, Step
    from pyg_batchgnn.fetch import AccessString
    from pyg_batchgnn.loader.on_disk import Continuation, LookAhead
    from pyg_batchgnn.sample import TokenTimes
    from pyg_batchgnn.store import DistGraphStore


SamplerHook = Callable[[Any], Any]


@dataclass(frozen=True, eq=False)
class Exported:
    """A batch as the user gets it, before the user's transform."""

    batch: Any
    counters: LoaderCounters | None = None  # what making it took; None if it took nothing


class Exporter(Protocol):
    """Turns minibatches into batches."""

    def export(self, minibatch: Any) -> Exported:
        """Makes the batch of a minibatch: a fetched `Minibatch`, or without a fetcher a sample."""


@dataclass(frozen=True)
class NativeExporter:
    """Hands out minibatches as they are."""

    times: TokenTimes | None  # those that tokens get

    def export(self, minibatch: Minibatch) -> Exported:
        return Exported(minibatch if self.times is None else minibatch.with_token_times(self.times))


class GatheringExporter:
    """Makes PyG batches straight from the user's data: rows are gathered when a batch is made.
    ``info``: adds the entries of seeds or links. ``transform_sampler_output``: the user's function
    from sample to sample, or None."""

    def __init__(
        self, source: Source, form: PygForm, info: SampleInfo, transform_sampler_output: SamplerHook | None
    ) -> None:
        self.form, self._source, self._info, self._hook = form, source, info, transform_sampler_output

    def export(self, minibatch: SampledMinibatch) -> Exported:
        exported = self.from_output(self.form.output(minibatch), minibatch)
        remember_edges(exported.batch, minibatch, self.form)
        return exported

    def from_output(self, out: PygOutput, minibatch: SampledMinibatch | None = None) -> Exported:
        """Makes the batch of a sample in PyG's form; ``minibatch``: what it was made from."""
        return self._gathered(out if self._hook is None else self._hook(out), minibatch)

    def batch_bytes(self, minibatch: SampledMinibatch) -> int:
        """Returns the bytes of a batch's attributes, without calling the user's function."""
        counters = self._gathered(self.form.output(minibatch)).counters
        return 0 if counters is None else counters.bytes_gathered

    def _gathered(self, out: PygOutput, minibatch: SampledMinibatch | None = None) -> Exported:
        begin = time.perf_counter()
        gather = self._source.gatherer(minibatch)
        batch = self._source.batch(out, gather)
        fetched = time.perf_counter()
        self._info.add(batch, out)
        counters = LoaderCounters(
            bytes_gathered=gather.bytes_gathered,
            fetch_seconds=fetched - begin,
            export_seconds=time.perf_counter() - fetched,
            **disk_counts(None if gather.mapped is None else gather.mapped.counters),
        )
        return Exported(batch, counters)


def remember_edges(batch: Any, minibatch: SampledMinibatch, form: PygForm) -> None:
    """Registers the edges of a batch, for layers that ask for the minibatch behind them, or for the
    ids of nodes of several types. Not from worker processes, which are copies, or without hops."""
    stores = batch.edge_stores if form.names is Names.TYPES and get_worker_info() is None else ()
    for store in filter(lambda one: isinstance(one.get("edge_index"), Tensor), stores):
        ENDS[store.edge_index] = [batch[name].get("n_id") for name in store._key[::2]]
    if form.names is not Names.NONE or form.subgraph is not SubgraphType.directional:
        return
    edges = minibatch.coo
    if edges is not None and getattr(batch, "edge_index", None) is edges and get_worker_info() is None:
        remember(batch.edge_index, minibatch)


class BlockExporter:
    """Makes PyG batches with copies of rows that a fetcher put into blocks. ``info``: adds the
    entries of seeds or links. ``custom_cls``: the class of batches; None for PyG's."""

    def __init__(self, form: PygForm, info: SampleInfo, custom_cls: Any) -> None:
        self._form, self._info = form, info
        self._typed = form.names is Names.TYPES
        self._make = custom_cls or (HeteroData if self._typed else Data)

    def export(self, minibatch: Minibatch) -> Exported:
        begin = time.perf_counter()
        gather = Gatherer()
        out = self._form.output(minibatch)
        batch = self._make()
        for group, nodes in zip(minibatch.schema.node_groups, minibatch.nodes, strict=True):
            store = self._store(batch, group)
            store.num_nodes = nodes.node.numel()
            _put(store, minibatch.attributes.get(group), None, gather)
        self._put_edges(batch, minibatch, out, gather)
        self._info.add(batch, out)
        remember_edges(batch, minibatch, self._form)
        seconds = time.perf_counter() - begin
        return Exported(batch, LoaderCounters(bytes_gathered=gather.bytes_gathered, export_seconds=seconds))

    def _put_edges(self, batch: Any, minibatch: Minibatch, out: PygOutput, gather: Gatherer) -> None:
        """Puts the edges of a sample and their attributes into its batch. Edges that became
        bidirectional are gathered by their own ids; those between two types have no ids."""
        for group, edges in zip(minibatch.schema.edge_groups, minibatch.edges, strict=True):
            store = self._store(batch, group)
            row, col, edge = (self._of(one, group) for one in (out.row, out.col, out.edge))
            store.edge_index = edge_index_of(row, col)
            if edge is not None:
                assert edges.edge is not None
                place = None if edge is edges.edge else _places(edges.edge, edge)
                _put(store, minibatch.attributes.get(group), place, gather)

    def _store(self, batch: Any, group: Group) -> Any:
        return batch[group.name] if self._typed else batch

    def _of(self, part: Any, group: Group) -> Any:
        return part.get(group.name) if isinstance(part, Mapping) else part


def _put(store: Any, rows: AttributeRows | None, place: Tensor | None, gather: Gatherer) -> None:
    if rows is None:
        return
    index = rows.row if place is None else place if rows.row is None else rows.row[place]
    for name, table in rows.tables.items():
        store[name] = table if index is None else gather(table, index)


def _places(known: Tensor, wanted: Tensor) -> Tensor:
    ascending, order = known.sort()
    return order[torch.searchsorted(ascending, wanted)]


T = TypeVar("T")

#: Does a piece of work, now.
Now = Callable[[Callable[[], Any]], Any]


def immediately(work: Callable[[], T]) -> T:
    return work()


class StatsBook:
    """Collects counters. A macrobatch's account opens when it is sampled and grows as its
    minibatches are exported, with prefetching on another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = LoaderCounters()
        self._total = LoaderCounters()

    def __reduce__(self) -> tuple[type[StatsBook], tuple[()]]:
        return StatsBook, ()  # a worker process starts a book of its own

    def open(self, counters: LoaderCounters) -> None:
        with self._lock:
            self._last = dataclasses.replace(counters)
            self._total.add(counters)

    def add(self, counters: LoaderCounters) -> None:
        with self._lock:
            self._last.add(counters)
            self._total.add(counters)

    def snapshot(self) -> LoaderStats:
        with self._lock:
            return LoaderStats(dataclasses.replace(self._last), dataclasses.replace(self._total))


class Pipeline:
    """Makes batches: samples, fetches and exports macrobatches. Over ranks this is collective: all
    ranks make the same macrobatches, and each rank its own minibatches of them."""

    def __init__(
        self,
        inputs: Inputs,
        sampler: Sampler,
        fetcher: Fetcher | None,
        exporter: Exporter,
        num_nodes: Sequence[int],
    ) -> None:
        self.inputs, self.num_nodes = inputs, num_nodes
        self.sampler, self.fetcher, self.exporter = sampler, fetcher, exporter
        self.embedding: EmbeddingSteps | None = None
        self.tokens: int | None = None  # of each seed
        self.look_ahead: LookAhead | None = None
        self.book = StatsBook()

    def sample(self, item: WorkItem) -> list[SampledMinibatch]:
        """Samples a macrobatch and begins to count its work."""
        if self.look_ahead is not None:
            self.look_ahead.before(item)
        begin = time.perf_counter()
        inputs = self.inputs.take(item, self.sampler.seed)
        minibatches = self._sampled(item, inputs)
        counters = sampling_counters(minibatches, self.num_nodes, begin)
        counters.late_negatives = sum(one.late_negatives for one in inputs)
        counters.frozen_seeds = self._frozen(inputs)
        self.book.open(counters)
        return minibatches

    def reading_bytes(self, minibatch: SampledMinibatch) -> int:
        """As `MacrobatchSampler.reading_bytes`; 0 over ranks."""
        sampler = self.sampler
        return sampler.reading_bytes(minibatch) if isinstance(sampler, MacrobatchSampler) else 0

    def sample_uncounted(self, item: WorkItem) -> list[SampledMinibatch]:
        return self._sampled(item, self.inputs.take(item, self.sampler.seed))

    def ahead(
        self,
        items: Iterator[WorkItem],
        fetch_size: int,
        horizon: int | None,
        following: Callable[[], Iterator[WorkItem]] | None,
        is_last: bool = False,
    ) -> Iterator[WorkItem]:
        """Yields ``items``. If attributes are read from files, macrobatches are sampled ahead to
        list the rows that they need, ``horizon`` at a time (None: the whole epoch)."""
        look = self.look_ahead
        if look is None:
            yield from items
            return
        look.check()
        while window := list(itertools.islice(items, horizon)):
            first = window[0].epoch, window[0].number, 0
            is_whole = following is not None and horizon is None
            if not (is_whole and look.rows.goes_on(first, self.sampler.seed)):
                string = look.rows.begin(look.string_bytes, self.sampler.seed)
                self._tell(look, string, window, fetch_size)
                look.rows.look_ahead(string, goes_on=is_whole and not is_last)
            look.continuation = None
            if following is not None and is_whole and not is_last:
                look.continuation = self._continuation(look, window, following(), fetch_size)
            yield from window

    def _continuation(
        self, look: LookAhead, window: Sequence[WorkItem], following: Iterator[WorkItem], fetch_size: int
    ) -> Continuation:
        """Prepares to list the rows of the epoch after ``window``, while that is trained."""
        from pyg_batchgnn.loader.on_disk import Continuation

        string = look.rows.begin(look.string_bytes, self.sampler.seed, follows=True)
        turn = max(0, len(window) - 1 - look.reach(-(-len(window[0].steps) // fetch_size)))

        def tell(count: int | None) -> None:
            self._tell(look, string, itertools.islice(following, count), fetch_size)

        return Continuation(window[0].epoch, turn, -(-len(window) // max(1, turn)), string, tell)

    def _tell(
        self, look: LookAhead, string: AccessString, items: Iterable[WorkItem], fetch_size: int
    ) -> None:
        """Samples macrobatches only to list the rows that they need."""
        begin = time.perf_counter()
        for item in items:
            sampled = self.sample_uncounted(item)
            self.book.add(LoaderCounters(minibatches_ahead=len(sampled)))
            for number, at in enumerate(range(0, len(sampled), fetch_size)):
                group = FetchGroup(sampled[at : at + fetch_size], item.epoch, item.number, number)
                look.add(string, group)
        self.book.add(LoaderCounters(ahead_seconds=time.perf_counter() - begin))

    def _sampled(self, item: WorkItem, inputs: Sequence[StepInputs]) -> list[SampledMinibatch]:
        internal = [one.internal for one in inputs if one.internal is not None]
        seeds = MacrobatchSeeds(
            item.epoch,
            item.number,
            [one.seeds for one in inputs],
            internal if len(internal) == len(inputs) else None,
        )
        with self._limit():
            sampled = self.sampler.sample_macrobatch(seeds)
        if isinstance(self.sampler, MacrobatchSampler) and (read := self.sampler.take_counters()) is not None:
            self.book.add(edge_counts(read))
        return [
            dataclasses.replace(minibatch, input_id=one.input_id, seed_time=one.time, links=one.links)
            for minibatch, one in zip(sampled, inputs, strict=True)
        ]

    def batches(self, item: WorkItem, fetch_size: int, now: Now = immediately) -> Iterator[Any]:
        """Makes the batches of a macrobatch, before the user's transform. ``now``: does the
        sampling and the fetching, which are collective over ranks."""
        sampled = now(functools.partial(self.sample, item))
        if self.embedding is None:
            return self.finished(item, sampled, fetch_size, now)
        steps = now(functools.partial(self.embedding.plan, sampled, item))
        made = self.finished(item, sampled, fetch_size, now)
        return map(self.embedding.noted, made, drain(steps))

    def finished(
        self, item: WorkItem, sampled: list[SampledMinibatch], fetch_size: int, now: Now
    ) -> Iterator[Any]:
        """Makes the batches of a sampled macrobatch; empties the list."""
        if self.fetcher is None:
            yield from self.exported(sampled)
            return
        for ready in self.fetched(item, sampled, fetch_size, now):
            yield from self.exported(ready)

    def fetched(
        self, item: WorkItem, sampled: list[SampledMinibatch], fetch_size: int, now: Now
    ) -> Iterator[list[Any]]:
        """Fetches the attributes of a sampled macrobatch, group by group; empties the list."""
        number = 0
        while sampled:
            group, sampled[:fetch_size] = sampled[:fetch_size], []
            ready = now(functools.partial(self._fetch, FetchGroup(group, item.epoch, item.number, number)))
            number += 1
            del group  # it holds memory of minibatches that the user may be done with
            yield ready
            del ready

    def exported(self, ready: list[Any]) -> Iterator[Any]:
        """Makes batches, before the user's transform; empties the list."""
        return map(self._export, drain(ready))

    def outputs(self, minibatches: list[SampledMinibatch]) -> Iterator[PygOutput]:
        """Returns sampled minibatches in PyG's form, and keeps none."""
        assert isinstance(self.exporter, GatheringExporter)
        return map(self.exporter.form.output, map(self._with_tokens, drain(minibatches)))

    def from_output(self, out: PygOutput) -> Any:
        """Makes the batch of a sample in PyG's form, before the user's transform."""
        exporter: Any = self.exporter  # one that makes PyG batches
        with self._limit():
            return self.counted(exporter.from_output(out))

    def counted(self, exported: Exported) -> Any:
        if exported.counters is not None:
            self.book.add(exported.counters)
        return exported.batch

    def _frozen(self, inputs: Sequence[StepInputs]) -> int:
        freeze: int | None = getattr(self.sampler.plan, "freeze", None)
        if freeze is None:
            return 0
        times = [one.seeds.time for one in inputs if one.seeds.time is not None]
        return sum(int((time > freeze).sum()) for time in times)

    def _limit(self) -> AbstractContextManager[None]:
        """Bounds the threads of operators: each of the user's workers uses one."""
        return ops.thread_limit(self.sampler.threads if get_worker_info() is None else 1)

    def _export(self, minibatch: SampledMinibatch) -> Any:
        with self._limit():
            return self.counted(self.exporter.export(self._with_tokens(minibatch)))

    def _with_tokens(self, minibatch: Any) -> Any:
        if self.tokens is None:
            return minibatch
        from pyg_batchgnn.sample import tokens_of

        return dataclasses.replace(minibatch, tokens=tokens_of(minibatch, self.tokens))

    def _fetch(self, group: FetchGroup) -> list[Minibatch]:
        assert self.fetcher is not None
        begin = time.perf_counter()
        with self._limit():
            fetched = self.fetcher.fetch(group)
        self.book.add(
            LoaderCounters(
                bytes_gathered=fetched.bytes,
                rows_fetched=fetched.rows,
                cache_hits=fetched.hits,
                cache_misses=fetched.misses,
                cache_bytes=fetched.hit_bytes,
                fetch_seconds=time.perf_counter() - begin,
                **disk_counts(fetched.disk),
            )
        )
        return fetched.minibatches


@dataclass(frozen=True, eq=False)
class EmbeddingSteps:
    """Plans the learned rows of each step of a macrobatch, and notes the step of each batch."""

    embedding: Embedding  # the tables
    comm: Communicator | None  # the communicator that samples; None in one process
    #: returns the internal ids of a minibatch's nodes of a type, given by number
    internal: Callable[[int, Tensor], Tensor]

    @classmethod
    def of(cls, data: Any, options: LoaderOptions, num_workers: int) -> EmbeddingSteps | None:
        """Makes the planner of a loader's steps; None if the loader has no tables. Raises
        ValueError if the tables are of another graph, or worker processes make the batches."""
        embedding = options.embedding
        if embedding is None:
            return None
        if num_workers:
            raise ValueError(
                f"embedding is for the loader's own thread; with num_workers={num_workers} the steps of the "
                f"tables would be planned in other processes: use prefetch=1 and threads"
            )
        from pyg_batchgnn.embed import Embedding

        ops.check_type("embedding", embedding, Embedding, "make one with Embedding(data, columns)")
        embedding.check_graph(data)
        if not is_partitioned(data):
            return cls(embedding, None, embedding.owners.internal_ids)
        graph: DistGraphStore = data[1]
        if graph.topology is None:
            return cls(embedding, graph.comm, lambda _, node: node)
        return cls(embedding, graph.comm, lambda number, node: graph.internal_ids(node, number))

    def plan(self, minibatches: Sequence[SampledMinibatch], item: WorkItem) -> list[Step]:
        """Tells the owners which learned rows the steps of a macrobatch need; collective."""
        wanted = [
            [self.internal(number, one.node) for number, one in enumerate(minibatch.nodes)]
            for minibatch in minibatches
        ]
        return self.embedding.plan(wanted, self.comm, item.epoch, item.number)

    def noted(self, batch: Any, step: Step) -> Any:
        self.embedding.attach(batch, step)
        return batch
