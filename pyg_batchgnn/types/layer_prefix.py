"""The part of a minibatch that one layer takes: its first rows and edges (design, section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


def layers_sampled(nodes_per_hop: Sequence[int], edges_per_hop: Sequence[int] | None) -> int | None:
    """Returns the number of layers that a minibatch was sampled for.

    Args:
        nodes_per_hop: the number of seeds, then of the nodes that each hop found.
        edges_per_hop: the number of edges of each hop; None in a graph without relations.

    Returns:
        The number of hops; None for an induced subgraph, whose edges are not counted by hop.
    """
    hops = len(nodes_per_hop) - 1
    is_counted = edges_per_hop is None or len(edges_per_hop) > 0 or hops == 0
    return hops if is_counted else None


@dataclass(frozen=True)
class LayerHops:
    """The hops whose edges a layer takes. Layer l of L takes those of the first L - l + 1 hops.

    Attributes:
        hops: the number of hops. None in an induced subgraph: every layer takes all edges, and
            every node is source and target.
    """

    hops: int | None

    @classmethod
    def of(cls, layers: int | None, layer: int) -> LayerHops:
        """Returns the prefix of a layer.

        Args:
            layers: the number of layers that the minibatch was sampled for; None for an induced
                subgraph.
            layer: the number of the layer, from 1 at the input.

        Raises:
            ValueError: there is no such layer.
        """
        if layer >= 1 and (layers is None or layer <= layers):
            return cls(None if layers is None else layers - layer + 1)
        known = "is an induced subgraph" if layers is None else f"was sampled for layers 1 to {layers}"
        raise ValueError(
            f"the minibatch {known}, there is no layer {layer}; give as many fanouts as the model has "
            f"layers, and count layers from 1 at the input"
        )

    def targets(self, nodes_per_hop: Sequence[int]) -> int:
        """Returns the number of rows that the layer computes."""
        return sum(nodes_per_hop[: self.hops])

    def sources(self, nodes_per_hop: Sequence[int]) -> int:
        """Returns the number of rows that the layer reads."""
        return sum(nodes_per_hop[: None if self.hops is None else self.hops + 1])

    def edges(self, edges_per_hop: Sequence[int], every: int) -> int:
        """Returns the number of edges that the layer takes, ``every`` edge of an induced
        subgraph."""
        return every if self.hops is None else sum(edges_per_hop[: self.hops])
