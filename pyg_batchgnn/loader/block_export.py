"""PyG batches of minibatches whose attributes were fetched from other ranks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn.data import Group
from pyg_batchgnn.loader.export import Exported, remember_edges
from pyg_batchgnn.loader.filter import edge_index_of
from pyg_batchgnn.loader.gather import Gatherer
from pyg_batchgnn.loader.stats import LoaderCounters
from pyg_batchgnn.sample import AttributeRows, Minibatch, Names, PygForm, PygOutput, SampleInfo


class BlockExporter:
    """Makes PyG batches with copies of the rows that a fetcher put into blocks.

    Args:
        form: the form of samples.
        info: adds the entries of batches that are about seeds or links.
        custom_cls: the class of the batches; ``Data`` or ``HeteroData`` if None.
        threads: at most this many threads copy rows.
    """

    def __init__(self, form: PygForm, info: SampleInfo, custom_cls: Any, threads: int | None) -> None:
        self._form, self._info, self._threads = form, info, threads
        self._typed = form.names is Names.TYPES
        self._make = custom_cls or (HeteroData if self._typed else Data)

    def export(self, minibatch: Minibatch) -> Exported:
        """Makes the batch of a fetched minibatch."""
        begin = time.perf_counter()
        gather = Gatherer(self._threads)
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
        """Puts the edges of a sample into its batch, and the rows of their attributes.

        Edges that became bidirectional may be others than those that were fetched. Those of two
        relations have no ids, and then no attributes.
        """
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
        """Returns a group's part of a sample."""
        return part.get(group.name) if isinstance(part, Mapping) else part


def _put(store: Any, rows: AttributeRows | None, place: Tensor | None, gather: Gatherer) -> None:
    """Copies the rows of attributes into a store; ``place``: which of them, None for all."""
    if rows is None:
        return
    index = rows.row if place is None else place if rows.row is None else rows.row[place]
    for name, table in rows.tables.items():
        store[name] = table if index is None else gather(table, index)


def _places(known: Tensor, wanted: Tensor) -> Tensor:
    """Returns a place of each wanted value among those known, [n] int64."""
    ascending, order = known.sort()
    return order[torch.searchsorted(ascending, wanted)]
