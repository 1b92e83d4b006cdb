"""The nodes and edges of a minibatch that one layer takes."""

from __future__ import annotations

from dataclasses import dataclass

from pyg_batchgnn.sample.sampled import SampledMinibatch
from pyg_batchgnn.sample.sampled_parts import SampledEdges, SampledNodes


@dataclass(frozen=True)
class LayerExtent:
    """The first nodes and edges of a minibatch, or all of an induced subgraph.

    Attributes:
        hops: the layer takes the edges of the first ``hops`` hops. None: it takes all edges, and
            every node is source and target.
    """

    hops: int | None

    @classmethod
    def of(cls, minibatch: SampledMinibatch, number: int) -> LayerExtent:
        """Returns the extent of a layer; 1 is nearest the input.

        Raises:
            ValueError: the minibatch has no such layer.
        """
        hops = len(minibatch.nodes[0].nodes_per_hop) - 1
        is_layer = number >= 1 and (number <= hops or not minibatch.has_layers)
        if not is_layer:
            known = f"has layers 1 to {hops}" if minibatch.has_layers else "is an induced subgraph"
            raise ValueError(
                f"the minibatch {known}, there is no layer {number}; layers count from 1 at the input, one "
                f"per fanout, and an induced subgraph serves any number of them"
            )
        return cls(hops - number + 1 if minibatch.has_layers else None)

    @classmethod
    def of_all(cls, minibatch: SampledMinibatch) -> list[LayerExtent]:
        """Returns the extents of as many layers as there are hops, that of the input first."""
        hops = len(minibatch.nodes[0].nodes_per_hop) - 1
        return [cls.of(minibatch, number) for number in range(1, hops + 1)]

    def targets(self, nodes: SampledNodes) -> int:
        """Returns the number of rows of a type that the layer computes."""
        return sum(nodes.nodes_per_hop[: self.hops])

    def sources(self, nodes: SampledNodes) -> int:
        """Returns the number of rows of a type that the layer reads."""
        return sum(nodes.nodes_per_hop[: None if self.hops is None else self.hops + 1])

    def edges(self, edges: SampledEdges) -> int:
        """Returns the number of edges of a relation that the layer takes."""
        return edges.num_edges if self.hops is None else sum(edges.edges_per_hop[: self.hops])
