"""The rows and edges of a minibatch that each layer reads and writes.

A node is expanded once, at the hop where it is first seen, and local ids follow the order of
discovery. Layer l of L (1 is next to the input) therefore works on prefixes. Its destinations are
the first ``D_l = sum(nodes_per_hop[:L-l+1])`` rows, its edges are the first
``sum(edges_per_hop[:L-l+1])`` edges, and its inputs are the rows that the layer before it has
computed. There is no block per layer and no relabelling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class LayerPrefix:
    """The part of a minibatch that one layer works on.

    Attributes:
        rows_in: number of leading rows that it reads.
        rows_out: number of leading rows that it computes.
        edges: number of leading edges that it aggregates.
    """

    rows_in: int
    rows_out: int
    edges: int


def layer_prefixes(
    num_layers: int, num_sampled_nodes: Sequence[int], num_sampled_edges: Sequence[int]
) -> list[LayerPrefix]:
    """Returns one `LayerPrefix` per layer, the layer next to the input first.

    Args:
        num_layers: L.
        num_sampled_nodes: number of nodes found at each hop, the seed nodes first; length L + 1.
        num_sampled_edges: number of edges sampled at each hop; length L.

    Raises:
        ValueError: the minibatch does not have one hop per layer.
    """
    hops = len(num_sampled_edges)
    if hops != num_layers or len(num_sampled_nodes) != hops + 1:
        raise ValueError(
            f"a model of {num_layers} layers needs minibatches of {num_layers} hops, but this one has "
            f"{hops} edge counts and {len(num_sampled_nodes)} node counts; give the loader "
            f"{num_layers} entries in num_neighbors"
        )
    prefixes = []
    for layer in range(1, num_layers + 1):
        expanded = num_layers - layer + 1
        rows_out = int(sum(num_sampled_nodes[:expanded]))
        rows_in = rows_out + int(num_sampled_nodes[expanded])
        prefixes.append(LayerPrefix(rows_in, rows_out, int(sum(num_sampled_edges[:expanded]))))
    return prefixes


def whole_graph_prefixes(num_layers: int, num_nodes: int, num_edges: int) -> list[LayerPrefix]:
    """Returns the prefixes for a whole graph: every layer computes every row from every edge."""
    return [LayerPrefix(num_nodes, num_nodes, num_edges)] * num_layers
