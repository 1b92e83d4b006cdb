"""The forms in which batches are handed out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from torch.utils.data import get_worker_info
from torch_geometric.sampler.base import SubgraphType

from pyg_batchgnn.loader.gather import Gatherer
from pyg_batchgnn.loader.source import Source
from pyg_batchgnn.loader.stats import LoaderCounters
from pyg_batchgnn.sample import (
    Minibatch,
    Names,
    PygForm,
    PygOutput,
    SampledMinibatch,
    SampleInfo,
    remember,
)

SamplerHook = Callable[[Any], Any]


@dataclass(frozen=True, eq=False)
class Exported:
    """A batch as the user gets it, before the user's transform.

    Attributes:
        batch: the batch.
        counters: what making it took; None if it took nothing.
    """

    batch: Any
    counters: LoaderCounters | None = None


class Exporter(Protocol):
    """Turns minibatches into batches."""

    def export(self, minibatch: Any) -> Exported:
        """Makes a batch of a minibatch.

        The minibatch is a fetched one if the pipeline has a fetcher, else a sampled one.
        """


class NativeExporter:
    """Hands out minibatches as they are."""

    def export(self, minibatch: Minibatch) -> Exported:
        """Returns the minibatch."""
        return Exported(minibatch)


class GatheringExporter:
    """Makes PyG batches straight from the user's data, whose rows are read when a batch is made.

    Args:
        source: where attributes come from.
        form: the form of samples.
        info: adds the entries of batches that are about seeds or links.
        transform_sampler_output: the user's hook between sampling and fetching, or None.
        threads: at most this many threads copy rows.
    """

    def __init__(
        self,
        source: Source,
        form: PygForm,
        info: SampleInfo,
        transform_sampler_output: SamplerHook | None,
        threads: int | None,
    ) -> None:
        self.form = form
        self._source, self._info = source, info
        self._hook, self._threads = transform_sampler_output, threads

    def export(self, minibatch: SampledMinibatch) -> Exported:
        """Makes the batch of a sampled minibatch."""
        exported = self.from_output(self.form.output(minibatch))
        remember_edges(exported.batch, minibatch, self.form)
        return exported

    def from_output(self, out: PygOutput) -> Exported:
        """Makes the batch of a sample in PyG's form."""
        return self._gathered(out if self._hook is None else self._hook(out))

    def batch_bytes(self, minibatch: SampledMinibatch) -> int:
        """Returns the bytes of the attributes that a batch holds. The user's hook is not called."""
        counters = self._gathered(self.form.output(minibatch)).counters
        return 0 if counters is None else counters.bytes_gathered

    def _gathered(self, out: PygOutput) -> Exported:
        begin = time.perf_counter()
        gather = Gatherer(self._threads)
        batch = self._source.batch(out, gather)
        fetched = time.perf_counter()
        self._info.add(batch, out)
        counters = LoaderCounters(
            bytes_gathered=gather.bytes_gathered,
            fetch_seconds=fetched - begin,
            export_seconds=time.perf_counter() - fetched,
        )
        return Exported(batch, counters)


def remember_edges(batch: Any, minibatch: SampledMinibatch, form: PygForm) -> None:
    """Lets accelerated layers find the minibatch by the edges of its batch.

    A batch from a worker process is a copy, which nobody could find. Neither are the edges of a
    typed batch, and those that were not sampled in hops.
    """
    if form.names is not Names.NONE or form.subgraph is not SubgraphType.directional:
        return
    edges = minibatch.coo
    handed_out = edges is not None and getattr(batch, "edge_index", None) is edges
    if edges is not None and handed_out and get_worker_info() is None:
        remember(edges, minibatch)
