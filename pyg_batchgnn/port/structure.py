"""The nodes and edges that a call of a captured model is about, and the prefixes of them.

A graph of one type has one type and one relation, whose names are None.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, TypeAlias

from torch import Tensor

from pyg_batchgnn import nn, ops
from pyg_batchgnn.nn import LayerGraph
from pyg_batchgnn.port.prefixes import NodesByHop, PrefixEdges, SampleKeys
from pyg_batchgnn.port.recording import Counter
from pyg_batchgnn.types import Relation, SampledMinibatch

_WORD = (1 << 64) - 1
#: The name of a node type, or of a relation; None for the only one.
TypeName: TypeAlias = str | None
RelationName: TypeAlias = Relation | None


class Structure(Protocol):
    """The nodes of hops 0 to H, and the edges of hops 1 to H.

    A graph whose hops are not known has H = 0: all nodes are of hop 0, and so are all edges.
    """

    @property
    def hops(self) -> int: ...

    def counter(self, counter: Counter) -> int:
        """Returns the number of nodes or edges of a hop."""

    def has(self, relation: RelationName) -> bool:
        """Returns whether there are edges of a relation, which may be none."""

    def graph(self, relation: RelationName, layer: int, targets: int, edges: int, drops: bool) -> LayerGraph:
        """Returns the edges of a convolution. ``layer``: its number for the keys of dropout, from
        1. ``targets``: the hops of the nodes whose rows are computed. ``edges``: the hops of the
        edges that it is called with. ``drops``: whether it drops elements now."""

    def dropout(self, name: TypeName, layer: int, place: int, rows: int) -> tuple[int, Tensor | None]:
        """Returns the key of a dropout, and the ids of its rows (None: row numbers). ``layer``: the
        number of convolutions before it. ``place``: the number of dropouts before it since then."""


def prefix(structure: Structure, kind: str, name: Any, hops: int) -> int:
    """Returns the number of nodes of hops 0 to ``hops``, or of edges of hops 1 to ``hops``."""
    return sum(structure.counter((kind, name, hop)) for hop in range(hops + 1))


class DrawnKey:
    """A number that is drawn from torch's generator once for some passes, if one of them drops. It
    is added to the keys of a sample, so that every training pass drops other elements."""

    def __init__(self) -> None:
        self._drawn: int | None = None

    def fold(self, key: int) -> int:
        if self._drawn is None:
            self._drawn = ops.drawn_key()
        return ops.to_signed(ops.fold_key(key & _WORD, self._drawn & _WORD))


@dataclass(frozen=True)
class UnsampledGraph:
    """A graph whose hops are not known. Dropout draws its keys from torch's generator."""

    edge_index: Mapping[RelationName, Tensor]  # [2, E] by relation
    nodes: Mapping[TypeName, int]  # the number of nodes of each type
    hops: ClassVar[int] = 0

    def counter(self, counter: Counter) -> int:
        kind, name, _ = counter
        return self.nodes[name] if kind == "nodes" else self.edge_index[name].size(1)

    def has(self, relation: RelationName) -> bool:
        return relation in self.edge_index

    def graph(self, relation: RelationName, layer: int, targets: int, edges: int, drops: bool) -> LayerGraph:
        del layer, targets, edges, drops
        source, _, target = relation or (None, None, None)
        return nn.whole_graph(self.edge_index[relation], self.nodes[source], self.nodes[target])

    def dropout(self, name: TypeName, layer: int, place: int, rows: int) -> tuple[int, Tensor | None]:
        del name, layer, place, rows
        return ops.drawn_key(), None


@dataclass(frozen=True)
class SampledBatch:
    relations: Mapping[RelationName, PrefixEdges]  # the edges of each relation
    nodes: Mapping[TypeName, NodesByHop]  # the nodes of each type
    hops: int
    keys: SampleKeys | None  # what dropout is keyed by, if a loader of this process made the sample
    drawn: DrawnKey  # is added to the keys

    @classmethod
    def of_one_type(cls, edges: PrefixEdges) -> SampledBatch:
        return cls({None: edges}, {None: edges.of_targets}, edges.hops, edges.keys, DrawnKey())

    def counter(self, counter: Counter) -> int:
        kind, name, hop = counter
        if kind == "nodes":
            return self.nodes[name].per_hop[hop]
        return 0 if hop == 0 else self.relations[name].edges_per_hop[hop - 1]

    def has(self, relation: RelationName) -> bool:
        return relation in self.relations

    def graph(self, relation: RelationName, layer: int, targets: int, edges: int, drops: bool) -> LayerGraph:
        padded = targets >= edges
        hops = edges if padded else targets + 1
        of_all = None if padded else edges
        graph = self.relations[relation].graph(layer, hops, padded=padded, normalised_by=of_all)
        return replace(graph, key=self.drawn.fold(graph.key)) if drops and graph.key is not None else graph

    def dropout(self, name: TypeName, layer: int, place: int, rows: int) -> tuple[int, Tensor | None]:
        if self.keys is None:
            return ops.drawn_key(), None
        keys = self.keys if name is None else replace(self.keys, names=(name,))
        key = self.drawn.fold(keys.of_layer(layer))
        key = key if place == 0 else ops.to_signed(ops.fold_key(key & _WORD, place))
        return key, self.nodes[name].ids(rows)


@dataclass(frozen=True)
class InducedBatch:
    """A native minibatch that is an induced subgraph: its edges are of no hops."""

    minibatch: SampledMinibatch
    drawn: DrawnKey
    hops: ClassVar[int] = 0

    def counter(self, counter: Counter) -> int:
        kind, name, _ = counter
        if kind == "nodes":
            return (self.minibatch.nodes[0] if name is None else self.minibatch.nodes_of(name)).node.numel()
        return (self.minibatch.edges[0] if name is None else self.minibatch.edges_of(name)).num_edges

    def has(self, relation: RelationName) -> bool:
        return relation is None or relation in self.minibatch.schema.relations

    def graph(self, relation: RelationName, layer: int, targets: int, edges: int, drops: bool) -> LayerGraph:
        del targets, edges
        graph = nn.layer_graph(self.minibatch, layer, relation)
        return replace(graph, key=self.drawn.fold(graph.dropout_key())) if drops else graph

    def dropout(self, name: TypeName, layer: int, place: int, rows: int) -> tuple[int, Tensor | None]:
        del rows
        own = self.minibatch.schema.node_types[0] if name is None else name
        of_layer = nn.layer_rows(self.minibatch, max(1, layer), own)
        key = self.drawn.fold(of_layer.dropout_key())
        place = place if layer else -1 - place
        return key if place == 0 else ops.to_signed(ops.fold_key(key & _WORD, place & _WORD)), of_layer.node


class PrefixLayer(nn.TypedEdges):
    """The edges of several relations. ``of_layer``: the last four arguments of
    `Structure.graph`."""

    def __init__(
        self, structure: Structure, relations: Collection[Relation], of_layer: tuple[int, int, int, bool]
    ) -> None:
        self._structure, self._relations, self._of_layer = structure, relations, of_layer

    def graph(self, relation: Relation) -> nn.LayerGraph | None:
        if relation not in self._relations or not self._structure.has(relation):
            return None
        return self._structure.graph(relation, *self._of_layer)

    def rows(self, name: str) -> nn.LayerRows:
        _, targets, edges, _ = self._of_layer
        above = max(targets, min(targets + 1, edges))
        num_targets, num_sources = (prefix(self._structure, "nodes", name, hops) for hops in (targets, above))
        return nn.LayerRows(num_targets, num_sources)
