"""From a work item to batches: sample, fetch, export.

The same code runs in the main process, on its prefetching thread and in worker processes.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from torch import Tensor
from torch.utils.data import get_worker_info
from torch_geometric.data import Data
from torch_geometric.sampler import NodeSamplerInput, SamplerOutput

from pyg_batchgnn.fetch import fetch_group, point_into
from pyg_batchgnn.loader.filter import Gatherer, add_sample_info
from pyg_batchgnn.loader.options import Export
from pyg_batchgnn.loader.order import WorkItem
from pyg_batchgnn.loader.reading import Reading
from pyg_batchgnn.loader.source import DataSource, Source, StoreSource
from pyg_batchgnn.loader.stats import Counters, StatsBook, sampling_counters
from pyg_batchgnn.sample import MacrobatchSampler, Minibatch, SampledMinibatch
from pyg_batchgnn.sample.pyg import to_sampler_output

T = TypeVar("T")

SamplerHook = Callable[[SamplerOutput], SamplerOutput]


class Pipeline:
    """Makes batches.

    Args:
        data: what the user gave the loader.
        inputs: the loader's input nodes.
        sampler: samples macrobatches.
        reading: which attributes native batches carry, and where those lie.
        beside: tables that native batches carry as well, a row a node of the graph.
        transform_sampler_output: the user's hook between sampling and fetching, or None.
        custom_cls: class of the batches made from a feature store, or None.
    """

    def __init__(
        self,
        data: Any,
        inputs: NodeSamplerInput,
        sampler: MacrobatchSampler,
        reading: Reading,
        beside: Mapping[str, Tensor],
        transform_sampler_output: SamplerHook | None = None,
        custom_cls: Any = None,
    ) -> None:
        self.inputs = inputs
        self.sampler = sampler
        self.transform_sampler_output = transform_sampler_output
        self.custom_cls = custom_cls
        self.reading, self.beside = reading, beside
        self.book = StatsBook()
        self.source = self.source_of(data)

    def source_of(self, data: Any) -> Source:
        if isinstance(data, Data):
            return DataSource(data, self.reading, self.beside)
        return StoreSource(data[0], self.reading, self.beside, self.custom_cls)

    @property
    def threads(self) -> int | None:
        """One in a worker process: there are as many workers as the user wants to be busy."""
        return self.sampler.threads if get_worker_info() is None else 1

    def sample(self, item: WorkItem) -> list[SampledMinibatch]:
        """Samples a macrobatch and opens its account."""
        begin = time.perf_counter()
        inputs = [self.inputs[index] for index in item.indices]
        nodes = [one.node.long().contiguous() for one in inputs]
        sampled = self.sampler.sample(nodes, item.epoch, self.threads)
        minibatches = [
            dataclasses.replace(minibatch, input_id=one.input_id)
            for minibatch, one in zip(sampled, inputs, strict=True)
        ]
        self.book.open(sampling_counters(minibatches, self.sampler.graph.num_nodes, begin))
        return minibatches

    def batches(self, item: WorkItem, export: Export, fetch_size: int) -> Iterator[Any]:
        """The batches of a macrobatch, before the user's transform. A PyG batch's attributes are read when
        it is asked for."""
        sampled = self.sample(item)
        if export is Export.NATIVE:
            return self.natives(sampled, fetch_size)
        return map(self.to_pyg, outputs(sampled))

    def to_pyg(self, out: SamplerOutput) -> Data:
        """One PyG batch, before the user's transform."""
        if self.transform_sampler_output is not None:
            out = self.transform_sampler_output(out)
        return self.gather(out)

    def gather(self, out: SamplerOutput) -> Data:
        """The batch of a sample that the user's hook has seen already."""
        begin = time.perf_counter()
        gather = Gatherer(self.threads)
        batch = self.source.batch(out, gather)
        fetched = time.perf_counter()
        add_sample_info(batch, out)
        exported = time.perf_counter()
        self._book_fetch(gather, fetched - begin, exported - fetched)
        return batch

    def natives(self, minibatches: list[SampledMinibatch], fetch_size: int) -> Iterator[Minibatch]:
        """The minibatches with their attributes: in place, or fetched for ``fetch_size`` of them at a
        time."""
        if minibatches and (tables := self.tables()) is not None:
            ready = point_into(minibatches, tables)
            minibatches.clear()
            yield from drain(ready)
        while minibatches:
            group, minibatches[:fetch_size] = minibatches[:fetch_size], []
            begin = time.perf_counter()
            gather = Gatherer(self.threads)
            fetch = functools.partial(self.source.block, gather=gather)
            ready = fetch_group(group, fetch, self.sampler.graph.num_nodes)
            self._book_fetch(gather, time.perf_counter() - begin, 0.0)
            del group, fetch, gather  # all hold memory of minibatches that the user may be done with
            yield from drain(ready)

    def tables(self) -> dict[str, Tensor] | None:
        """The tables that native batches read in place; None where they get a block."""
        return self.source.tables(self.sampler.graph.num_nodes)

    def _book_fetch(self, gather: Gatherer, fetch_seconds: float, export_seconds: float) -> None:
        self.book.add(
            Counters(
                bytes_gathered=gather.bytes_gathered,
                fetch_seconds=fetch_seconds,
                export_seconds=export_seconds,
            )
        )


def drain(minibatches: list[T]) -> Iterator[T]:
    """Hands minibatches over one by one and keeps none, so that their memory returns when the user is
    done."""
    minibatches.reverse()
    while minibatches:
        yield minibatches.pop()


def outputs(minibatches: list[SampledMinibatch]) -> Iterator[SamplerOutput]:
    """The minibatches in PyG's form, keeping none."""
    return map(_output, drain(minibatches))


def _output(minibatch: SampledMinibatch) -> SamplerOutput:
    return to_sampler_output(minibatch, minibatch.input_id)
