"""The input of a first layer whose aggregation was computed in advance (BatchGNN, figure 2).

A first layer that aggregates features without weights can do so once for all nodes. The aggregates
are read like features, and a minibatch needs no hop for that layer: all its nodes are targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch_geometric.nn.conv import MessagePassing

from pyg_batchgnn import ops
from pyg_batchgnn.nn.inputs import LayerGraph, RowView, all_nodes, is_sampled
from pyg_batchgnn.nn.native_conv import layer_name, refuse
from pyg_batchgnn.types import SampledMinibatch

#: The prefix of the attributes that carry aggregates in a minibatch.
_PREFIX = "x_"
KINDS = (*ops.SUMS, "symmetric")


@dataclass(frozen=True, eq=False)
class Aggregated:
    """The input of a first layer whose aggregation was computed in advance (`AggregationCache`):
    ``conv(aggregated, minibatch)`` computes all N nodes of the minibatch."""

    kind: str  # "mean" or "sum" over the in-edges, or "symmetric" as in GCN, loops included
    neighbours: Tensor | RowView  # [N, F], the aggregates
    own: Tensor | RowView | None = None  # [N, F], the nodes' own features; GCN needs none

    def of(self, conv: MessagePassing, kind: str) -> Tensor | RowView:
        """Returns the aggregates. Raises ValueError unless they are of the layer's ``kind``."""
        if kind != self.kind:
            raise ValueError(
                f"{layer_name(conv)} aggregates by {kind} here, but the minibatch carries aggregates by "
                f"{self.kind}; give the loader AggregationCache.build(data, {kind!r})"
            )
        return self.neighbours

    def nodes(self, edges: Any) -> LayerGraph:
        """Returns the layer that computes all nodes of the minibatch ``edges``."""
        if not is_sampled(edges):
            raise TypeError(f"aggregates belong to a minibatch's nodes, got edges of {type(edges).__name__}")
        nodes = edges.node.numel()
        for name, rows in (("neighbours", self.neighbours), ("own", self.own)):
            if rows is not None and rows.size(0) != nodes:
                raise ValueError(
                    f"the aggregates have {rows.size(0)} rows in {name}, but the minibatch has {nodes} "
                    f"nodes; give the rows of its nodes: RowView(table, minibatch.node)"
                )
        return all_nodes(edges)

    def own_of(self, conv: MessagePassing) -> Tensor | RowView:
        """Returns the nodes' own features. Raises ValueError if there are none."""
        if self.own is None:
            raise ValueError(
                f"{layer_name(conv)} needs the features of each node as well as the aggregates, but "
                f"the minibatch carries no 'x'; put it among the loader's attributes"
            )
        return self.own


def refuse_aggregated(conv: MessagePassing, why: str) -> ValueError:
    return refuse(conv, f"aggregates made beforehand: {why}", "leave the loader's cache out")


def aggregated_of(minibatch: SampledMinibatch) -> Aggregated | None:
    """Returns the aggregates that a minibatch carries, to be read in place; None without any."""
    row: Tensor | None = getattr(minibatch, "row", None)
    block: Mapping[str, Tensor] = getattr(minibatch, "block", {})
    kind = next((kind for kind in KINDS if _PREFIX + kind in block), None)
    if row is None or kind is None:
        return None
    own = RowView(block["x"], row) if "x" in block else None
    return Aggregated(kind, RowView(block[_PREFIX + kind], row), own)
