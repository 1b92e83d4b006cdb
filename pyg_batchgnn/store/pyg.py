"""A graph by destination from what PyG's loaders accept as ``data``."""

from __future__ import annotations

import contextlib
import copy
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, EdgeAttr, FeatureStore, HeteroData, TensorAttr
from torch_geometric.data.graph_store import EdgeLayout, GraphStore

from pyg_batchgnn import ops
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.store.graph import CscGraph, TypedGraph
from pyg_batchgnn.types import EDGES, HOMOGENEOUS, NODES, Group, Relation, RowKind, Schema

_HETERO = (
    "this takes a homogeneous graph, but data is heterogeneous; give a homogeneous Data, for instance "
    "data.to_homogeneous()"
)


def graph_from_pyg(data: Any) -> CscGraph:
    """As `typed_graph_from_pyg`, for a homogeneous graph. Raises NotImplementedError else."""
    if is_typed(data):
        raise NotImplementedError(_HETERO)
    return CscGraph(typed_graph_from_pyg(data).relations[0])


def is_typed(data: Any) -> bool:
    """Returns whether ``data`` names node types: a ``HeteroData``, or stores with edge types."""
    return isinstance(data, HeteroData) or (_is_pair(data) and is_typed_pair(data[1]))


def typed_graph_from_pyg(data: Any) -> TypedGraph:
    """Returns the graph of a ``Data``, a ``HeteroData`` or a ``(FeatureStore, GraphStore)`` pair,
    types and relations in the order of ``data.metadata()``. Edges are ``edge_index`` or ``adj_t``.
    Edges by destination are used in place; others are sorted once, by counting. Raises TypeError,
    ValueError or IndexError if there is no graph, or its arrays do not fit together.

    >>> typed_graph_from_pyg(typed).num_edges
    400
    """
    if isinstance(data, HeteroData):
        return _from_hetero_data(data)
    if isinstance(data, Data):
        return _from_data(data)
    if _is_pair(data):
        return read_graph_store(*data)
    raise TypeError(
        f"data must be a Data, a HeteroData or a (FeatureStore, GraphStore) pair, got {type(data).__name__}"
    )


def _is_pair(data: Any) -> bool:
    return isinstance(data, (tuple, list)) and len(data) == 2 and isinstance(data[1], GraphStore)


def _from_data(data: Data) -> TypedGraph:
    if "edge_index" in data:
        check_dtype(data.edge_index)  # PyG infers the number of nodes from ids of some types only
    num_nodes = data.num_nodes
    if num_nodes is None:
        raise ValueError(
            "the number of nodes is unknown: set data.num_nodes or a node attribute such as data.x"
        )
    edges = in_edges_of_storage(data._store, num_nodes, num_nodes)
    return TypedGraph(HOMOGENEOUS, (num_nodes,), (edges,))


def _from_hetero_data(data: HeteroData) -> TypedGraph:
    for relation in data.edge_types:
        with named(relation):
            check_dtype(data[relation].get("edge_index", None))
    schema = _schema_of(data)
    counts = {name: data[name].num_nodes for name in schema.node_types}
    for name, count in counts.items():
        if count is None:
            raise ValueError(
                f"the number of nodes of type {name!r} is unknown: set data[{name!r}].num_nodes or a node "
                f"attribute such as data[{name!r}].x"
            )
        ops.check_node_count(f"data[{name!r}].num_nodes", count)
    relations = []
    for relation in schema.relations:
        with named(relation):
            relations.append(in_edges_of_storage(data[relation], counts[relation[0]], counts[relation[2]]))
    return TypedGraph(schema, tuple(counts.values()), tuple(relations))


def _schema_of(data: HeteroData) -> Schema:
    node_types, edge_types = data.metadata()
    if not node_types:
        raise ValueError("data has no node types: add one, for instance data['paper'].x = x")
    for relation in edge_types:
        for name in (relation[0], relation[2]):
            if name not in node_types:
                raise ValueError(
                    f"edges of {relation} have ends of type {name!r}, of which data has no nodes: set "
                    f"data[{name!r}].num_nodes"
                )
    return Schema(tuple(node_types), tuple(edge_types))


@contextlib.contextmanager
def named(relation: Relation) -> Iterator[None]:
    """Adds the name of a relation to errors about its edges."""
    try:
        yield
    except (TypeError, ValueError, IndexError) as error:
        raise type(error)(f"edges of {relation}: {error}") from None


def in_edges_of_storage(store: Any, num_sources: int, num_targets: int) -> InEdges:
    """Returns the in-edges of one of PyG's storages, from ``edge_index`` or ``adj_t``."""
    if "adj_t" in store:
        return _of_adj_t(store["adj_t"], num_sources, num_targets)
    edge_index = store.get("edge_index", None)
    if edge_index is None and "adj" in store:
        raise TypeError("data has edges in adj only; give them as edge_index, or by destination as adj_t")
    if edge_index is None:
        edge_index = torch.empty(2, 0, dtype=torch.int64)
    return _shared_copy(ops.build_csc(_plain(edge_index), num_targets, num_sources))


def _plain(edge_index: Any) -> Tensor:
    """Removes PyG's `EdgeIndex` wrapper: the kernels take plain tensors."""
    as_tensor = getattr(edge_index, "as_tensor", None)
    plain = as_tensor() if as_tensor is not None else edge_index
    check_dtype(plain)
    return plain.cpu()


def check_dtype(edge_index: Any) -> None:
    dtype = getattr(edge_index, "dtype", torch.int64)
    if dtype in (torch.int32, torch.int64):
        return
    remedy = f"; {ops.MAP_IDS}" if dtype == torch.uint64 else "; use .long()"
    raise TypeError(f"edge_index must be int64 (or int32), got {dtype}{remedy}")


def _of_adj_t(adj_t: Any, num_sources: int, num_targets: int) -> InEdges:
    if isinstance(adj_t, InEdges):
        indptr, indices, edge_ids = adj_t.indptr, adj_t.indices, adj_t.edge_ids
    elif isinstance(adj_t, Tensor):
        if adj_t.layout is not torch.sparse_csr:
            raise TypeError(
                f"adj_t must be a sparse CSR tensor, got layout {adj_t.layout}; use adj_t.to_sparse_csr()"
            )
        indptr, indices, edge_ids = adj_t.crow_indices(), adj_t.col_indices(), None
    else:  # torch_sparse.SparseTensor
        (indptr, indices, _), edge_ids = adj_t.csr(), None
    if indptr.numel() != num_targets + 1:
        raise ValueError(
            f"adj_t has {indptr.numel() - 1} rows, but data has {num_targets} nodes; both must be the same"
        )
    return _shared_in_place(
        InEdges.checked(indptr.long().contiguous(), indices.contiguous(), edge_ids, num_sources=num_sources)
    )


# A graph by destination from PyG's remote stores.
#
# The order of types is the one in which the stores name them: node types with attributes first,
# then those that only edges name. So minibatches do not depend on the hashes of names.


#: The layouts in the order in which they are taken if a store holds several.
_LAYOUTS = (EdgeLayout.CSC, EdgeLayout.COO, EdgeLayout.CSR)


class _Edges:
    """The edges of one relation in a graph store: two arrays in the layout that ``attr`` names.
    ``attr`` also has the numbers of nodes at both ends, if the store knows them."""

    def __init__(self, graph: GraphStore, attrs: Sequence[EdgeAttr]) -> None:
        by_layout = {attr.layout: attr for attr in attrs}
        known = [by_layout[layout] for layout in _LAYOUTS if layout in by_layout]
        if not known:
            fact = "the graph store holds edges in an unknown layout"
            raise ValueError(f"{fact}: {sorted(map(str, by_layout))}")
        # A Data or HeteroData says the size only when it is asked for the arrays.
        self.attr, self.arrays = known[0], graph.get_edge_index(known[0])

    def num_nodes(self, end: int) -> int | None:
        if self.attr.size is not None and self.attr.size[end] is not None:
            return int(self.attr.size[end])
        pointer_end = {EdgeLayout.CSC: 1, EdgeLayout.CSR: 0}.get(self.attr.layout)
        return self.arrays[end].numel() - 1 if end == pointer_end else None

    def in_edges(self, num_sources: int, num_targets: int) -> InEdges:
        row, col = (part.contiguous() for part in self.arrays)
        if self.attr.layout is EdgeLayout.CSC:
            if col.numel() != num_targets + 1:
                raise ValueError(
                    f"the CSC has {col.numel() - 1} columns for {num_targets} nodes; both must be the same"
                )
            return _shared_in_place(InEdges.checked(col.long(), row, num_sources=num_sources))
        if self.attr.layout is EdgeLayout.CSR:
            row = torch.repeat_interleave(torch.arange(row.numel() - 1), row[1:] - row[:-1])
        return _shared_copy(ops.build_csc(torch.stack([row, col.to(row.dtype)]), num_targets, num_sources))


def is_typed_pair(graph: GraphStore) -> bool:
    return any(attr.edge_type is not None for attr in graph.get_all_edge_attrs())


def read_graph_store(features: Any, graph: GraphStore) -> TypedGraph:
    """Returns the graph of a pair of stores. Raises TypeError, ValueError or IndexError if there
    are no edges, or the arrays do not fit together."""
    attrs = graph.get_all_edge_attrs()
    if not attrs:
        raise ValueError("the graph store holds no edges: put some with put_edge_index")
    if not is_typed_pair(graph):
        edges = _Edges(graph, attrs)
        sizes = [size for size in (edges.num_nodes(0), edges.num_nodes(1)) if size is not None]
        if not sizes:
            fact = "the graph store does not say how many nodes there are"
            raise ValueError(f"{fact}: give size to put_edge_index")
        nodes = max(sizes)
        return TypedGraph(HOMOGENEOUS, (nodes,), (edges.in_edges(nodes, nodes),))
    by_relation: dict[Relation, list[EdgeAttr]] = {}
    for attr in attrs:
        if attr.edge_type is None:
            fact = "the graph store holds edges with and without an edge type"
            raise ValueError(f"{fact}: give all of them one")
        by_relation.setdefault(tuple(attr.edge_type), []).append(attr)
    held = {relation: _Edges(graph, attrs) for relation, attrs in by_relation.items()}
    counts = _count_nodes(features, held)
    relations = []
    for relation, edges in held.items():
        with named(relation):
            relations.append(edges.in_edges(counts[relation[0]], counts[relation[2]]))
    return TypedGraph(Schema(tuple(counts), tuple(held)), tuple(counts.values()), tuple(relations))


def _count_nodes(features: FeatureStore, held: Mapping[Relation, _Edges]) -> dict[str, int]:
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
    sizes = set()
    for attr in attrs:
        with contextlib.suppress(NotImplementedError, KeyError):
            size = features.get_tensor_size(attr)
            sizes |= set() if size is None else {int(size[0])}
    return sizes


# A loader is made of the user's data alone, and does not know of others. The edges that it makes
# are held here for as long as some loader uses them. The next loader takes them if its own are
# equal. So a change of the data between two loaders is seen.

_edges: weakref.WeakValueDictionary[Any, InEdges] = weakref.WeakValueDictionary()


def _shared_copy(edges: InEdges) -> InEdges:
    """Returns edges that equal these from a registry of private copies, else registers these."""
    indices, has_ids = edges.indices, edges.edge_ids is not None
    key = (edges.num_targets, edges.num_edges, indices.dtype, int(indices.sum()), has_ids)
    held = _edges.get(key)
    if held is not None and all(map(torch.equal, _arrays(held), _arrays(edges))):
        return held
    _edges[key] = edges
    return edges


def _shared_in_place(edges: InEdges) -> InEdges:
    """Returns edges registered for the same unchanged memory, else registers these."""
    places = [
        (one.data_ptr(), 0 if one.is_inference() else one._version, one.numel(), one.dtype)
        for one in _arrays(edges)
    ]
    return _edges.setdefault(tuple(places), edges)


def _arrays(edges: InEdges) -> list[Tensor]:
    return [one for one in (edges.indptr, edges.indices, edges.edge_ids) if one is not None]


def attribute_by_group(data: Any, name: str, graph: TypedGraph) -> dict[Group, Tensor]:
    """Returns the attribute ``name``, with all rows, of every group that has it. Raises ValueError
    if a ``Data`` has it, but without a row per node or per edge."""
    if isinstance(data, HeteroData):
        groups = [*graph.schema.node_groups, *graph.schema.edge_groups]
        return {group: _tensor(data[group.name][name]) for group in groups if name in data[group.name]}
    if isinstance(data, Data):
        return _of_data(data, name)
    return _of_store(data[0], name, graph)


def weight_by_group(data: Any, name: str, graph: TypedGraph) -> dict[Group, Tensor]:
    """Returns an attribute of edge weights by group. In a ``Data`` with as many edges as nodes, PyG
    takes an attribute for one of nodes unless its name says "edge". This does not."""
    found = attribute_by_group(data, name, graph)
    is_clear = graph.schema.has_names or graph.num_nodes[0] != graph.num_edges
    if is_clear or EDGES in found or NODES not in found:
        return found
    return {EDGES: found[NODES]}


def _of_data(data: Data, name: str) -> dict[Group, Tensor]:
    if name not in data:
        return {}
    if data.is_node_attr(name):
        return {NODES: _tensor(data[name])}
    if data.is_edge_attr(name):
        return {EDGES: _tensor(data[name])}
    value = data[name]
    found = (
        f"has shape {list(value.shape)}" if hasattr(value, "shape") else f"is of type {type(value).__name__}"
    )
    raise ValueError(
        f"{name!r} {found} in a graph of {data.num_nodes} nodes and {data.num_edges} edges; give one value "
        f"for each node or for each edge"
    )


def _of_store(features: Any, name: str, graph: TypedGraph) -> dict[Group, Tensor]:
    groups = AttributeGroups(features, graph)
    known = {*graph.schema.node_groups, *graph.schema.edge_groups}
    found = {}
    for attr in map(copy.copy, features.get_all_tensor_attrs()):
        group = groups.of(attr)
        if attr.attr_name == name and group in known:
            attr.index = None  # all rows
            found[group] = _tensor(features.get_tensor(attr))
    return found


def _tensor(value: Any) -> Tensor:
    return torch.from_numpy(np.asarray(value)) if isinstance(value, np.ndarray) else value


def group_of(attr: TensorAttr, schema: Schema = HOMOGENEOUS) -> Group:
    """Returns the group of an attribute from PyG's name of it. In a homogeneous graph, a relation
    names the edges and anything else the nodes."""
    if not schema.has_names:
        return EDGES if isinstance(attr.group_name, tuple) else NODES
    kind = RowKind.EDGE if isinstance(attr.group_name, tuple) else RowKind.NODE
    return Group(kind, attr.group_name)


class AttributeGroups:
    """Finds the group of each attribute in a feature store. In a store without types, an attribute
    under the name of nodes may belong to edges: its number of rows decides, as in a ``Data``."""

    def __init__(self, features: FeatureStore, graph: TypedGraph) -> None:
        self._features, self._graph = features, graph
        self._known: dict[tuple[Any, Any], Group] = {}

    @property
    def schema(self) -> Schema:
        """The schema of the graph."""
        return self._graph.schema

    def of(self, attr: TensorAttr) -> Group:
        """Returns the group of an attribute; the graph may lack it."""
        key = attr.group_name, attr.attr_name
        if key not in self._known:
            self._known[key] = self._find(attr)
        return self._known[key]

    def _find(self, attr: TensorAttr) -> Group:
        schema, edges = self._graph.schema, self._graph.num_edges
        group = group_of(attr, schema)
        if schema.has_names or group.is_edge or edges == self._graph.num_nodes[0]:
            return group
        whole = copy.copy(attr)
        whole.index = None
        return schema.edge_groups[0] if edges in stored_rows(self._features, [whole]) else group
