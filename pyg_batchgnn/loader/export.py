"""The forms in which batches are handed out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import get_worker_info
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler.base import SubgraphType

from pyg_batchgnn.loader.filter import Gatherer, edge_index_of
from pyg_batchgnn.loader.source import Source
from pyg_batchgnn.loader.stats import LoaderCounters, disk_counts
from pyg_batchgnn.sample import (
    AttributeRows,
    Minibatch,
    Names,
    PygForm,
    PygOutput,
    SampledMinibatch,
    SampleInfo,
    remember,
)
from pyg_batchgnn.types import Group

if TYPE_CHECKING:
    from pyg_batchgnn.sample import TokenTimes

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
        self.form = form
        self._source, self._info = source, info
        self._hook = transform_sampler_output

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
    """Registers the edges of a batch, so that accelerated layers find the minibatch behind them.
    Batches from worker processes (which are copies), of several types, or without hops are not
    registered."""
    if form.names is not Names.NONE or form.subgraph is not SubgraphType.directional:
        return
    edges = minibatch.coo
    handed_out = edges is not None and getattr(batch, "edge_index", None) is edges
    if edges is not None and handed_out and get_worker_info() is None:
        remember(edges, minibatch)


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
