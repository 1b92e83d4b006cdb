"""The edges of one layer of a native model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.nn.aggregated import all_nodes
from pyg_batchgnn.nn.graph import LayerGraph
from pyg_batchgnn.nn.halo import HaloPass
from pyg_batchgnn.nn.inputs import Edges
from pyg_batchgnn.nn.sampled import layer_graph


@dataclass(frozen=True)
class LayerEdges:
    """The edges of one layer of a model, as its convolution takes them.

    Attributes:
        edges: a minibatch, a `LayerGraph`, or [2, E] int64 with sources above targets.
        layer: the number of the layer in the minibatch, 0 if its input is `Aggregated`; None
            without a minibatch.
        values: the convolution's arguments of one value per edge.
        halo: the pass that the rows of halo nodes come from, or None without halo nodes.
    """

    edges: Edges
    layer: int | None
    values: Mapping[str, Tensor] = field(default_factory=dict)
    halo: HaloPass | None = None

    def apply(self, conv: torch.nn.Module, x: Any, **options: Any) -> Any:
        """Returns the result of the convolution."""
        layer = None if isinstance(self.edges, LayerGraph) else self.layer
        return conv(x, self.edges, layer, **self.values, **options)

    def dropout(self) -> tuple[int, Tensor | None]:
        """Returns the key of the layer's dropout, and the original ids of its targets (None: row
        numbers)."""
        if isinstance(self.edges, Tensor):
            return ops.drawn_key(), None
        graph = self.edges
        if not isinstance(graph, LayerGraph):
            graph = layer_graph(graph, self.layer) if self.layer else all_nodes(graph)
        return graph.dropout_key(), graph.node
