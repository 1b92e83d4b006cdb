"""The arguments of attention, which `GATConv` and `GATv2Conv` check alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing

from pyg_batchgnn import ops
from pyg_batchgnn.nn.aggregated import Aggregated, refuse_aggregated
from pyg_batchgnn.nn.inputs import ConvInput, Edges, Rows, conv_input
from pyg_batchgnn.nn.native_conv import NativeConv
from pyg_batchgnn.nn.refusals import refuse
from pyg_batchgnn.nn.slots import FILLS, Fill, Slots, edge_rows


@dataclass(frozen=True)
class AttentionCall:
    """The arguments of a call.

    Attributes:
        given: the rows and edges.
        slots: the slots of the edges and of the added loops.
        edge_attr: the features of the edges as the user gave them, or None.
        drop: the probability of dropping an attention weight in this call.
        key: the key of the dropout; 0 if nothing is dropped.
    """

    given: ConvInput
    slots: Slots
    edge_attr: Tensor | None
    drop: float
    key: int


@dataclass(frozen=True)
class EdgeFeatures:
    """The features of the edges of a layer.

    Attributes:
        edges: [E, edge_dim], in the order of the layer.
        loops: [loops, edge_dim], of the added loops; None if there are none.
    """

    edges: Tensor
    loops: Tensor | None


class AttentionConv(NativeConv):
    """The base of the attention layers, beside PyG's class, whose attributes it reads."""

    edge_values: ClassVar[str | None] = "edge_attr"
    pygs_node_dim: ClassVar[int] = 0
    add_self_loops: bool
    dropout: float
    fill_value: Fill
    lin_edge: Any

    @classmethod
    def check(cls, conv: MessagePassing) -> None:
        """Raises ValueError if the native layer cannot compute what one of PyG's does."""
        ops.check_drop(conv.dropout)
        if isinstance(conv.fill_value, str) and conv.fill_value not in FILLS:
            remedy = f"give a number or one of {', '.join(FILLS)}"
            raise refuse(conv, f"fill_value={conv.fill_value!r}", remedy)
        super().check(conv)

    def _call(
        self,
        x: Rows | Aggregated | tuple[Rows, Rows | None],
        edge_index: Edges,
        layer: int | Tensor | None,
        edge_attr: Tensor | None,
        size: tuple[int, int] | None = None,
    ) -> AttentionCall:
        """Checks the arguments of a call and brings them to one form."""
        self.check_call()
        if isinstance(layer, Tensor):
            layer, edge_attr = None, layer
        if isinstance(x, Aggregated):
            raise refuse_aggregated(self, "attention weighs neighbours by learned weights")
        return self._call_of(conv_input(x, edge_index, layer, size), edge_attr)

    def _call_of(self, given: ConvInput, edge_attr: Tensor | None) -> AttentionCall:
        """Returns the arguments of a call with what follows from them."""
        both = min(given.graph.num_sources, given.graph.num_targets)
        slots = Slots(given.graph, both if self.add_self_loops else None)
        drop = self.dropout if self.training else 0.0
        key = ops.attention_key(given.graph.dropout_key()) if drop > 0 else 0
        return AttentionCall(given, slots, edge_attr, drop, key)

    def _edge_features(self, call: AttentionCall, dtype: torch.dtype) -> EdgeFeatures | None:
        """Returns the features of the edges and of the added loops, or None if there are none.

        Raises:
            ValueError: the layer takes none, or others.
        """
        if call.edge_attr is None:
            return None
        if self.lin_edge is None:
            raise ValueError("edge_attr is given, but the layer was constructed without edge_dim")
        features = edge_rows(call.slots.graph, call.edge_attr, self.lin_edge.weight.size(1)).to(dtype)
        return EdgeFeatures(features, call.slots.loop_features(features, self.fill_value))
