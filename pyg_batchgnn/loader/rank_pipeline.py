"""From a macrobatch's seeds to batches, all ranks together: sample in relays, fetch in groups, export."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.sampler import NodeSamplerInput

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Header, MessageKind
from pyg_batchgnn.fetch import RemoteFetch
from pyg_batchgnn.loader.filter import Gatherer, add_sample_info, edge_index_of
from pyg_batchgnn.loader.options import Export
from pyg_batchgnn.loader.pipeline import drain
from pyg_batchgnn.loader.stats import Counters, StatsBook, sampling_counters
from pyg_batchgnn.sample import (
    Layout,
    MacrobatchSampler,
    Minibatch,
    RelaySampler,
    SampledMinibatch,
    SamplingPlan,
)
from pyg_batchgnn.sample.pyg import to_sampler_output
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore


@dataclass(frozen=True)
class RankItem:
    """One macrobatch to make: a rank's share of it."""

    epoch: int
    number: int  # of the macrobatch in the epoch
    positions: list[Tensor]  # of the seeds in the loader's input, a vector a minibatch
    internal: list[Tensor]  # the seeds' internal ids


@dataclass(frozen=True)
class Wanted:
    """What batches carry.

    Attributes:
        names, edge_names: attributes of nodes and of edges.
        export: the form of the batches.
        custom_cls: class of PyG batches, or None.
    """

    names: Sequence[str]
    edge_names: Sequence[str]
    export: Export
    custom_cls: Any = None


class RankPipeline:
    """Makes batches. What it does is collective: every rank makes the same macrobatches, each its own part.

    Args:
        features, graph: the stores.
        inputs: the loader's input nodes, the same on every rank.
        plan: fanouts, replacement, edge ids.
        seed: of sampling.
        wanted: what batches carry.
        seeds_are_own: whether every rank owns the seed nodes of its minibatches.
        threads: at most so many threads.
    """

    def __init__(
        self,
        features: DistFeatureStore,
        graph: DistGraphStore,
        inputs: NodeSamplerInput,
        plan: SamplingPlan,
        seed: int,
        wanted: Wanted,
        seeds_are_own: bool,
        threads: int | None,
    ) -> None:
        self.graph, self.inputs, self.plan, self.seed = graph, inputs, plan, seed
        self.wanted, self.threads = wanted, threads
        internal = None if graph.topology is None else graph.topology.internal
        self.fetch = RemoteFetch(features, wanted.names, wanted.edge_names, internal, threads)
        self.book = StatsBook()
        self._sampler = self._make_sampler(seeds_are_own)
        self._of_any: MacrobatchSampler | RelaySampler | None = None if seeds_are_own else self._sampler

    def reseed(self, seed: int) -> None:
        """Samples with another seed from now on."""
        self.seed = self._sampler.seed = seed
        if self._of_any is not None:
            self._of_any.seed = seed

    def sample(self, item: RankItem) -> list[SampledMinibatch]:
        """Samples a macrobatch and opens its account. Node ids are internal, unless every rank has the
        topology."""
        begin = time.perf_counter()
        minibatches = self._sample(self._sampler, item)
        self.book.open(sampling_counters(minibatches, self.graph.num_nodes, begin))
        return minibatches

    def batches(self, item: RankItem, fetch_size: int) -> Iterator[Any]:
        """The batches of a macrobatch, before the user's transform; each fetch group is fetched when its
        first batch is asked for, as one job of the communicator."""
        comm = self.graph.comm
        minibatches = comm.run_job(lambda: self.sample(item))
        for number in range(-(-len(minibatches) // fetch_size)):
            group, minibatches[:fetch_size] = minibatches[:fetch_size], []
            ready = comm.run_job(functools.partial(self._group, group, item, number))
            del group
            yield from map(self._export, drain(ready))

    def all_batches(self, item: RankItem, fetch_size: int) -> list[Any]:
        """The same, all at once, inside a job."""
        minibatches, batches = self.sample(item), list[Any]()
        for number in range(-(-len(minibatches) // fetch_size)):
            group, minibatches[:fetch_size] = minibatches[:fetch_size], []
            batches += map(self._export, drain(self._group(group, item, number)))
        return batches

    def anywhere(self, item: RankItem) -> list[Any]:
        """Batches of seeds that need not be this rank's, inside a job; statistics do not count them."""
        if self._of_any is None:
            self._of_any = self._make_sampler(seeds_are_own=False)
        sampler = self._of_any
        book, self.book = self.book, StatsBook()
        try:
            return [self._export(one) for one in self._group(self._sample(sampler, item), item, 0)]
        finally:
            self.book = book

    def _make_sampler(self, seeds_are_own: bool) -> MacrobatchSampler | RelaySampler:
        layout = Layout.COO if self.wanted.export is Export.PYG else Layout.CSC
        if self.graph.topology is not None:
            return MacrobatchSampler(self.graph.topology.graph, self.plan, self.seed, self.threads, layout)
        return RelaySampler(
            self.graph.part,
            self.graph.comm,
            self.plan,
            self.seed,
            self.threads,
            layout,
            seeds_are_own=seeds_are_own,
        )

    def _sample(self, sampler: MacrobatchSampler | RelaySampler, item: RankItem) -> list[SampledMinibatch]:
        inputs = [self.inputs[position] for position in item.positions]
        original = [one.node.long().contiguous() for one in inputs]
        if isinstance(sampler, RelaySampler):
            sampled = sampler.sample(item.internal, original, item.epoch, item.number)
        else:
            sampled = sampler.sample(original, item.epoch)
        return [
            dataclasses.replace(minibatch, input_id=one.input_id)
            for minibatch, one in zip(sampled, inputs, strict=True)
        ]

    def _group(self, minibatches: list[SampledMinibatch], item: RankItem, number: int) -> list[Minibatch]:
        begin = time.perf_counter()
        fetched = self.fetch.group(
            minibatches, Header(MessageKind.FEATURES, ops.to_signed(item.epoch), item.number, number)
        )
        self.book.add(
            Counters(
                bytes_gathered=fetched.bytes,
                rows_fetched=fetched.rows,
                cache_hits=fetched.hits,
                cache_misses=0 if self.fetch.cache is None else fetched.rows,
                cache_bytes=fetched.hits * self.fetch.row_bytes,
                fetch_seconds=time.perf_counter() - begin,
            )
        )
        return fetched.minibatches

    def _export(self, minibatch: Minibatch) -> Any:
        return minibatch if self.wanted.export is Export.NATIVE else self._to_pyg(minibatch)

    def _to_pyg(self, minibatch: Minibatch) -> Data:
        """A PyG batch with copies of its rows."""
        begin = time.perf_counter()
        gather = Gatherer(self.threads)
        assert minibatch.row is not None
        out = to_sampler_output(minibatch, minibatch.input_id)
        batch = Data() if self.wanted.custom_cls is None else self.wanted.custom_cls()
        batch.edge_index = edge_index_of(out)
        batch.num_nodes = minibatch.num_nodes
        for name, block in minibatch.block.items():
            batch[name] = gather(block, minibatch.row)
        for name, table in minibatch.edge_block.items():
            batch[name] = table
        add_sample_info(batch, out)
        self.book.add(
            Counters(bytes_gathered=gather.bytes_gathered, export_seconds=time.perf_counter() - begin)
        )
        return batch
