"""Layers of a minibatch that reads rows of halo nodes from caches.

Layers compute the rows of own nodes. Another rank computed those of halo nodes some steps ago. The
input of a layer is the own rows and, behind them, those that the caches have, without a gradient.
Edges from halo nodes without a row are left out.
"""

from __future__ import annotations

from typing import Any

import torch

from pyg_batchgnn import ops
from pyg_batchgnn.nn.inputs import Rows, table_and_row
from pyg_batchgnn.nn.layer_edges import HaloGraph, has_halo
from pyg_batchgnn.types import SampledMinibatch


class HaloPass:
    """One forward pass of a minibatch with halo nodes. For each layer in order::

        halo = HaloPass(minibatch)
        x = conv1(halo.inputs(1, features), halo.graph(1)).relu()
        x = conv2(halo.inputs(2, x), halo.graph(2))
        halo.finish()

    Args:
        minibatch: one of a loader with historical embeddings.
    """

    def __init__(self, minibatch: SampledMinibatch) -> None:
        if not has_halo(minibatch):
            raise TypeError(
                f"a {type(minibatch).__name__} has no halo nodes; loaders with historical embeddings make "
                f"minibatches that do"
            )
        batch: Any = minibatch
        # A `pyg_batchgnn.history.HistoricalPass`: own rows are noted, cached ones returned.
        self._minibatch, self._rows = minibatch, batch.begin_pass()

    def graph(self, layer: int) -> HaloGraph:
        """Returns the edges of a layer from sources that have a row."""
        batch, rows = self._minibatch, self._rows
        in_edges = rows.in_edges(layer)
        return HaloGraph(
            in_edges,
            num_sources=rows.own_rows(layer) + rows.num_cached(layer),
            node=batch.node[: in_edges.num_targets],
            key=ops.dropout_key(batch.seed, batch.epoch, batch.key, layer),
        )

    def inputs(self, layer: int, x: Rows) -> Rows:
        """Returns the own rows of a layer's input with the cached rows behind them; codes stay.
        ``x``: the own nodes' rows of the layer before; for layer 1 a `RowView` of their
        features."""
        rows = self._rows
        if x.size(0) != rows.own_rows(layer):
            raise ValueError(
                f"layer {layer} reads {rows.own_rows(layer)} own rows, but {x.size(0)} were given; call the "
                f"layers in order, each with the result of the one before"
            )
        table, row = table_and_row(x)
        rows.note(layer, table, row)
        cached = rows.cached(layer)
        if cached is None:
            return x
        own = ops.as_stored(table)
        own = own if row is None else ops.gather_rows(own, row)
        return ops.rows_like(table, torch.cat([own, ops.as_stored(cached).to(own.dtype)]))

    def finish(self) -> None:
        """Ends the pass: rows that other ranks want are sent."""
        self._rows.push()
