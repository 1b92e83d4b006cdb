"""Layers of a minibatch that reads rows of halo nodes from caches.

Such a minibatch has own nodes, whose rows its layers compute, and halo nodes, whose rows another
rank computed some steps ago. The input of a layer is the own rows and, behind them, the rows that
the caches have. Edges from halo nodes without a row are left out. Cached rows get no gradient.
"""

from __future__ import annotations

from typing import Any

import torch

from pyg_batchgnn import ops
from pyg_batchgnn.nn.inputs import Rows, table_and_row
from pyg_batchgnn.nn.layer_edges import HaloGraph, has_halo
from pyg_batchgnn.types import SampledMinibatch


class HaloPass:
    """One forward pass of a minibatch with halo nodes.

    For each layer in order, `inputs` makes the input of the convolution of the own rows, and
    `graph` is its edges. `finish` ends the pass::

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

        Args:
            x: the result of the layer before for the own nodes; for layer 1 a `RowView` of the
                attribute ``x`` of the minibatch.
        """
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
