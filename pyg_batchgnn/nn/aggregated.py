"""The input of a first layer whose aggregation is known beforehand (BatchGNN, figure 2).

Without weights in it, a first layer's aggregation of features that stay as they are can be made once for all
nodes, and read like features. A minibatch then needs no hop for that layer: all its nodes are targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing

from pyg_batchgnn import ops
from pyg_batchgnn.nn.graph import LayerGraph, SampledBatch
from pyg_batchgnn.nn.refusals import refuse
from pyg_batchgnn.nn.rows import RowView

#: What is before the kind of aggregation in the names of a minibatch's attributes.
_PREFIX = "x_"
KINDS = ("mean", "sum", "symmetric")


@dataclass(frozen=True, eq=False)
class Aggregated:
    """What ``conv(aggregated, minibatch)`` computes a minibatch's nodes from, all N of them.

    Attributes:
        kind: "mean" or "sum" over the in-edges, or "symmetric": GCN's, loops included.
        neighbours: [N, F] aggregates, a tensor or a `RowView`.
        own: [N, F] the nodes' own rows; None where they are not at hand, as GCN needs none.
    """

    kind: str
    neighbours: Tensor | RowView
    own: Tensor | RowView | None = None

    def of(self, conv: MessagePassing, kind: str) -> Tensor | RowView:
        """The aggregates, if they are those of a layer.

        Raises:
            ValueError: the layer takes others.
        """
        if kind != self.kind:
            raise ValueError(
                f"{type(conv).__name__} aggregates by {kind} here, but the minibatch carries aggregates by "
                f"{self.kind}; give the loader AggregationCache.build(data, {kind!r})"
            )
        return self.neighbours

    def own_of(self, conv: MessagePassing) -> Tensor | RowView:
        """The nodes' own rows.

        Raises:
            ValueError: they are not at hand.
        """
        if self.own is None:
            raise ValueError(
                f"{type(conv).__name__} needs each node's own features beside the aggregates, but the "
                f"minibatch carries no 'x'; put it among the loader's attributes"
            )
        return self.own


def refuse_aggregated(conv: MessagePassing, why: str) -> ValueError:
    """The error of a layer that cannot begin with aggregates."""
    return refuse(conv, f"aggregates made beforehand: {why}", "leave the loader's cache out")


def aggregated_of(minibatch: SampledBatch) -> Aggregated | None:
    """The aggregates that a minibatch carries, where they lie; None where it carries none."""
    row: Tensor | None = getattr(minibatch, "row", None)
    block: Mapping[str, Tensor] = getattr(minibatch, "block", {})
    kind = next((kind for kind in KINDS if _PREFIX + kind in block), None)
    if row is None or kind is None:
        return None
    own = RowView(block["x"], row) if "x" in block else None
    return Aggregated(kind, RowView(block[_PREFIX + kind], row), own)


def all_nodes(minibatch: SampledBatch) -> LayerGraph:
    """The layer below the lowest sampled one: every node is a target, and edges there are none."""
    nodes = minibatch.node.numel()
    return LayerGraph(
        ops.InEdges(torch.zeros(nodes + 1, dtype=torch.int64), minibatch.indices[:0]),
        num_sources=nodes,
        node=minibatch.node,
        key=ops.dropout_key(minibatch.seed, minibatch.epoch, minibatch.key, 0),
    )
