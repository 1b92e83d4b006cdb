"""The way from a work item to batches: sample, fetch, export.

The same code runs in one process and over ranks, on the user's thread, on a thread that prefetches
and in worker processes.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from torch.utils.data import get_worker_info

from pyg_batchgnn.fetch import Fetcher, FetchGroup
from pyg_batchgnn.loader.embedding_steps import EmbeddingSteps
from pyg_batchgnn.loader.export import Exported, Exporter, GatheringExporter
from pyg_batchgnn.loader.inputs import Inputs, StepInputs
from pyg_batchgnn.loader.prefetch import drain
from pyg_batchgnn.loader.stats import LoaderCounters, StatsBook, sampling_counters
from pyg_batchgnn.loader.work import WorkItem
from pyg_batchgnn.sample import MacrobatchSeeds, Minibatch, PygOutput, SampledMinibatch, Sampler

T = TypeVar("T")

#: Does a piece of work, now.
Now = Callable[[Callable[[], Any]], Any]


def immediately(work: Callable[[], T]) -> T:
    """Does a piece of work on the calling thread."""
    return work()


class Pipeline:
    """Makes batches.

    Over ranks making a macrobatch is collective: every rank makes the same ones, each its own
    share.

    Args:
        inputs: what the loader's positions stand for, by original id.
        sampler: samples macrobatches.
        fetcher: fetches attributes for groups of minibatches; None if the exporter reads them
            itself.
        exporter: turns minibatches into batches.
        num_nodes: the number of nodes of each type, above all ids that the sampler returns.

    Attributes:
        embedding: plans the steps of embedding tables; None without them.
    """

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
        self.book = StatsBook()

    def with_sampler(self, sampler: Sampler) -> Pipeline:
        """Returns a pipeline with another sampler and an account of its own."""
        return Pipeline(self.inputs, sampler, self.fetcher, self.exporter, self.num_nodes)

    def sample(self, item: WorkItem) -> list[SampledMinibatch]:
        """Samples a macrobatch and opens its account."""
        begin = time.perf_counter()
        inputs = self.inputs.take(item, self.sampler.seed)
        minibatches = self._sampled(item, inputs)
        late = sum(one.late_negatives for one in inputs)
        self.book.open(sampling_counters(minibatches, self.num_nodes, begin, late))
        return minibatches

    def sample_uncounted(self, item: WorkItem) -> list[SampledMinibatch]:
        """Samples a macrobatch, which the statistics do not count."""
        return self._sampled(item, self.inputs.take(item, self.sampler.seed))

    def _sampled(self, item: WorkItem, inputs: Sequence[StepInputs]) -> list[SampledMinibatch]:
        """Samples the macrobatch of some inputs."""
        internal = [one.internal for one in inputs if one.internal is not None]
        seeds = MacrobatchSeeds(
            item.epoch,
            item.number,
            [one.seeds for one in inputs],
            internal if len(internal) == len(inputs) else None,
        )
        # There are as many workers as the user wants to be busy: each of them uses one thread.
        sampled = self.sampler.sample_macrobatch(seeds, None if get_worker_info() is None else 1)
        return [
            dataclasses.replace(minibatch, input_id=one.input_id, seed_time=one.time, links=one.links)
            for minibatch, one in zip(sampled, inputs, strict=True)
        ]

    def batches(self, item: WorkItem, fetch_size: int, now: Now = immediately) -> Iterator[Any]:
        """Makes the batches of a macrobatch, before the user's transform.

        A fetch group is fetched when its first batch is asked for. Attributes that the exporter
        reads are read when their batch is asked for.

        Args:
            item: the macrobatch.
            fetch_size: minibatches per fetch group.
            now: samples and fetches, both of which are collective over ranks.
        """
        sampled = now(functools.partial(self.sample, item))
        if self.embedding is None:
            return self._finished(item, sampled, fetch_size, now)
        steps = now(functools.partial(self.embedding.plan, sampled, item))
        made = self._finished(item, sampled, fetch_size, now)
        return map(self.embedding.noted, made, drain(steps))

    def _finished(
        self, item: WorkItem, sampled: list[SampledMinibatch], fetch_size: int, now: Now
    ) -> Iterator[Any]:
        """Makes the batches of a macrobatch that has been sampled; takes over the list."""
        if self.fetcher is None:
            yield from map(self._export, drain(sampled))
        number = 0
        while sampled:
            group, sampled[:fetch_size] = sampled[:fetch_size], []
            ready = now(functools.partial(self._fetch, FetchGroup(group, item.epoch, item.number, number)))
            number += 1
            del group  # it holds memory of minibatches that the user may be done with
            yield from map(self._export, drain(ready))

    def outputs(self, minibatches: list[SampledMinibatch]) -> Iterator[PygOutput]:
        """Returns sampled minibatches in PyG's form, and keeps none."""
        assert isinstance(self.exporter, GatheringExporter)
        return map(self.exporter.form.output, drain(minibatches))

    def from_output(self, out: PygOutput) -> Any:
        """Makes the batch of a sample in PyG's form, before the user's transform."""
        assert isinstance(self.exporter, GatheringExporter)
        return self.counted(self.exporter.from_output(out))

    def counted(self, exported: Exported) -> Any:
        """Counts what making a batch took, and returns the batch."""
        if exported.counters is not None:
            self.book.add(exported.counters)
        return exported.batch

    def _export(self, minibatch: SampledMinibatch) -> Any:
        return self.counted(self.exporter.export(minibatch))

    def _fetch(self, group: FetchGroup) -> list[Minibatch]:
        assert self.fetcher is not None
        begin = time.perf_counter()
        fetched = self.fetcher.fetch(group)
        self.book.add(
            LoaderCounters(
                bytes_gathered=fetched.bytes,
                rows_fetched=fetched.rows,
                cache_hits=fetched.hits,
                cache_misses=fetched.misses,
                cache_bytes=fetched.hit_bytes,
                fetch_seconds=time.perf_counter() - begin,
            )
        )
        return fetched.minibatches
