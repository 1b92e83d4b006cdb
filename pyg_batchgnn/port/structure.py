"""The nodes and edges that a call of a recorded model is about, and the prefixes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from torch import Tensor

from pyg_batchgnn import nn, ops
from pyg_batchgnn.port.prefixes import PrefixEdges
from pyg_batchgnn.port.values import Counter
from pyg_batchgnn.types import SampledMinibatch

_WORD = (1 << 64) - 1


class Structure(Protocol):
    """The nodes of hops 0 to H, and the edges of hops 1 to H.

    A graph whose hops are not known has H = 0: all nodes are of hop 0, and so are all edges.

    Attributes:
        hops: H.
    """

    hops: int

    def counter(self, counter: Counter) -> int:
        """Returns the number of nodes or edges of a hop."""
        ...

    def edge_index(self) -> Tensor:
        """Returns all edges, [2, E] int64."""
        ...

    def graph(self, layer: int, targets: int, edges: int, drops: bool) -> nn.LayerGraph:
        """Returns the edges of a convolution.

        Args:
            layer: its number for the keys of dropout, from 1.
            targets: the hops of the nodes whose rows are computed.
            edges: the hops of the edges that it is called with; at least ``targets``.
            drops: whether the convolution drops elements now.
        """
        ...

    def dropout(self, layer: int, place: int, rows: int) -> tuple[int, Tensor | None]:
        """Returns the key of a dropout, and the ids of its rows (None: row numbers).

        Args:
            layer: the number of convolutions before it.
            place: the number of dropouts before it since then.
        """
        ...


def rows_of(structure: Structure, name: Any, hops: int) -> int:
    return sum(structure.counter(("nodes", name, hop)) for hop in range(hops + 1))


def edges_of(structure: Structure, relation: Any, hops: int) -> int:
    return sum(structure.counter(("edges", relation, hop)) for hop in range(hops + 1))


class WholeGraph:
    """A graph whose hops are not known. Dropout draws its keys from torch's generator."""

    hops = 0

    def __init__(self, edge_index: Tensor | None, nodes: int) -> None:
        self._edge_index, self._nodes = edge_index, nodes

    def counter(self, counter: Counter) -> int:
        if counter[0] == "nodes":
            return self._nodes
        return 0 if self._edge_index is None else self._edge_index.size(1)

    def edge_index(self) -> Tensor:
        assert self._edge_index is not None, "only convolutions ask for edges"
        return self._edge_index

    def graph(self, layer: int, targets: int, edges: int, drops: bool) -> nn.LayerGraph:
        del layer, targets, edges, drops
        return nn.whole_graph(self.edge_index(), self._nodes, self._nodes)

    def dropout(self, layer: int, place: int, rows: int) -> tuple[int, Tensor | None]:
        del layer, place, rows
        return ops.drawn_key(), None


class DrawnKey:
    """A number that is drawn from torch's generator once for some passes, if one of them drops.

    It is added to the keys of a sample. So every training pass over a batch drops other elements.
    """

    def __init__(self) -> None:
        self._drawn: int | None = None

    def fold(self, key: int) -> int:
        if self._drawn is None:
            self._drawn = ops.drawn_key()
        return ops.to_signed(ops.fold_key(key & _WORD, self._drawn & _WORD))


class SampledBatch:
    """A sampled batch with known hops.

    Args:
        edge_index: returns all edges, [2, E] int64.
    """

    def __init__(self, prefixes: PrefixEdges, edge_index: Callable[[], Tensor], drawn: DrawnKey) -> None:
        self._prefixes, self.edge_index, self._drawn = prefixes, edge_index, drawn
        self.hops = prefixes.hops

    def counter(self, counter: Counter) -> int:
        kind, _, hop = counter
        if kind == "nodes":
            return self._prefixes.nodes_per_hop[hop]
        return 0 if hop == 0 else self._prefixes.edges_per_hop[hop - 1]

    def graph(self, layer: int, targets: int, edges: int, drops: bool) -> nn.LayerGraph:
        padded = targets >= edges
        hops = edges if padded else targets + 1
        graph = self._prefixes.graph(layer, hops, padded=padded, normalised_by=None if padded else edges)
        if not drops or graph.key is None:
            return graph
        return replace(graph, key=self._drawn.fold(graph.key))

    def dropout(self, layer: int, place: int, rows: int) -> tuple[int, Tensor | None]:
        key, node = self._prefixes.dropout(layer, rows)
        if key is None:
            return ops.drawn_key(), None
        key = self._drawn.fold(key)
        return key if place == 0 else ops.to_signed(ops.fold_key(key & _WORD, place)), node


class InducedBatch:
    """A native minibatch that is an induced subgraph: its edges are of no hops."""

    hops = 0

    def __init__(self, minibatch: SampledMinibatch, drawn: DrawnKey) -> None:
        self._minibatch, self._drawn = minibatch, drawn

    def counter(self, counter: Counter) -> int:
        return self._minibatch.num_nodes if counter[0] == "nodes" else self._minibatch.num_edges

    def edge_index(self) -> Tensor:
        return self._minibatch.edge_index

    def graph(self, layer: int, targets: int, edges: int, drops: bool) -> nn.LayerGraph:
        del targets, edges
        graph = nn.layer_graph(self._minibatch, layer)
        return replace(graph, key=self._drawn.fold(graph.dropout_key())) if drops else graph

    def dropout(self, layer: int, place: int, rows: int) -> tuple[int, Tensor | None]:
        del rows
        graph = nn.layer_graph(self._minibatch, max(1, layer))
        key = self._drawn.fold(graph.dropout_key())
        place = place if layer else -1 - place
        return key if place == 0 else ops.to_signed(ops.fold_key(key & _WORD, place & _WORD)), graph.node
