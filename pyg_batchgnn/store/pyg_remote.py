"""A graph by destination from PyG's remote stores.

The order of types is the one in which the stores name them: node types with attributes first, then
those that only edges name. So minibatches do not depend on the hashes of names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch_geometric.data import EdgeAttr, FeatureStore
from torch_geometric.data.graph_store import EdgeLayout, GraphStore

from pyg_batchgnn.data import HOMOGENEOUS, Relation, Schema
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.store.pyg_relation import in_edges_of_layout, named
from pyg_batchgnn.store.typed_graph import TypedGraph

#: The layouts in the order in which they are taken if a store holds several.
_LAYOUTS = (EdgeLayout.CSC, EdgeLayout.COO, EdgeLayout.CSR)


@dataclass(frozen=True, eq=False)
class _Edges:
    """The edges of one relation, as a graph store gives them.

    Attributes:
        attr: the layout, and the numbers of nodes at both ends if the store knows them.
        arrays: the two arrays of the layout.
    """

    attr: EdgeAttr
    arrays: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, graph: GraphStore, attrs: Sequence[EdgeAttr]) -> _Edges:
        """Reads edges in the best of the layouts that a store offers."""
        by_layout = {attr.layout: attr for attr in attrs}
        for layout in _LAYOUTS:
            if layout in by_layout:
                # A Data or HeteroData says the size only when it is asked for the arrays.
                return cls(by_layout[layout], graph.get_edge_index(by_layout[layout]))
        raise ValueError(f"the graph store holds edges in an unknown layout: {sorted(map(str, by_layout))}")

    def num_nodes(self, end: int) -> int | None:
        """Returns the number of source (0) or target (1) nodes, if the store says it."""
        if self.attr.size is not None and self.attr.size[end] is not None:
            return int(self.attr.size[end])
        pointer_end = {EdgeLayout.CSC: 1, EdgeLayout.CSR: 0}.get(self.attr.layout)
        return self.arrays[end].numel() - 1 if end == pointer_end else None

    def in_edges(self, num_sources: int, num_targets: int) -> InEdges:
        """Returns the edges by destination."""
        return in_edges_of_layout(self.attr.layout, self.arrays, num_sources, num_targets)


def is_typed_pair(graph: GraphStore) -> bool:
    """Returns whether the edges of a graph store have edge types."""
    return any(attr.edge_type is not None for attr in graph.get_all_edge_attrs())


def read_graph_store(features: Any, graph: GraphStore) -> TypedGraph:
    """Returns the graph of a pair of stores.

    Raises:
        TypeError, ValueError, IndexError: there are no edges, or the arrays do not fit together.
    """
    attrs = graph.get_all_edge_attrs()
    if not attrs:
        raise ValueError("the graph store holds no edges: put some with put_edge_index")
    if not is_typed_pair(graph):
        return _homogeneous(_Edges.of(graph, attrs))
    by_relation: dict[Relation, list[EdgeAttr]] = {}
    for attr in attrs:
        by_relation.setdefault(_relation_of(attr), []).append(attr)
    held = {relation: _Edges.of(graph, attrs) for relation, attrs in by_relation.items()}
    counts = _count_nodes(features, held)
    relations = []
    for relation, edges in held.items():
        with named(relation):
            relations.append(edges.in_edges(counts[relation[0]], counts[relation[2]]))
    return TypedGraph(Schema(tuple(counts), tuple(held)), tuple(counts.values()), tuple(relations))


def _homogeneous(edges: _Edges) -> TypedGraph:
    sizes = [size for size in (edges.num_nodes(0), edges.num_nodes(1)) if size is not None]
    if not sizes:
        raise ValueError("the graph store does not say how many nodes there are: give size to put_edge_index")
    nodes = max(sizes)
    return TypedGraph(HOMOGENEOUS, (nodes,), (edges.in_edges(nodes, nodes),))


def _relation_of(attr: EdgeAttr) -> Relation:
    if attr.edge_type is None:
        raise ValueError("the graph store holds edges with and without an edge type: give all of them one")
    source, name, target = attr.edge_type
    return source, name, target


def _count_nodes(features: FeatureStore, held: Mapping[Relation, _Edges]) -> dict[str, int]:
    """Returns the number of nodes of each type, from the sizes of edges or else of attributes."""
    by_type: dict[str, list[Any]] = {}
    for attr in features.get_all_tensor_attrs():
        if isinstance(attr.group_name, str):
            by_type.setdefault(attr.group_name, []).append(attr)
    said: dict[str, set[int]] = {name: set() for name in by_type}
    for (source, _, target), edges in held.items():
        for name, end in ((source, 0), (target, 1)):
            size = edges.num_nodes(end)
            said.setdefault(name, set()).update([] if size is None else [size])
    return {
        name: _one_count(name, sizes or stored_rows(features, by_type.get(name, [])))
        for name, sizes in said.items()
    }


def _one_count(name: str, sizes: set[int]) -> int:
    if not sizes:
        raise ValueError(
            f"the stores do not say how many nodes of type {name!r} there are: give size to put_edge_index, "
            f"or put an attribute of these nodes"
        )
    if len(sizes) > 1:
        raise ValueError(
            f"the stores say that there are {min(sizes)} and that there are {max(sizes)} nodes of type "
            f"{name!r}: the sizes of all edges at these nodes must agree"
        )
    return next(iter(sizes))


def stored_rows(features: FeatureStore, attrs: Sequence[Any]) -> set[int]:
    """Returns the numbers of rows of some attributes, as far as the store knows them."""
    sizes = set()
    for attr in attrs:
        with contextlib.suppress(NotImplementedError, KeyError):
            size = features.get_tensor_size(attr)
            sizes |= set() if size is None else {int(size[0])}
    return sizes
