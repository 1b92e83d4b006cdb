"""A graph by destination from what PyG's loaders accept as ``data``."""

from __future__ import annotations

from typing import Any

from torch_geometric.data import Data, HeteroData
from torch_geometric.data.graph_store import GraphStore

from pyg_batchgnn import ops
from pyg_batchgnn.data import HOMOGENEOUS, Schema
from pyg_batchgnn.store.graph import CscGraph
from pyg_batchgnn.store.pyg_relation import check_dtype, in_edges_of_storage, named
from pyg_batchgnn.store.pyg_remote import is_typed_pair, read_graph_store
from pyg_batchgnn.store.typed_graph import TypedGraph

_HETERO = (
    "this takes a homogeneous graph, but data is heterogeneous; give a homogeneous Data, for instance "
    "data.to_homogeneous()"
)


def graph_from_pyg(data: Any) -> CscGraph:
    """Returns the graph of a homogeneous ``Data`` or of a ``(FeatureStore, GraphStore)`` pair.

    See `typed_graph_from_pyg`.

    Raises:
        NotImplementedError: a heterogeneous graph.
        TypeError, ValueError, IndexError: there is no graph, or its arrays do not fit together.
    """
    if is_typed(data):
        raise NotImplementedError(_HETERO)
    return CscGraph(typed_graph_from_pyg(data).relations[0])


def is_typed(data: Any) -> bool:
    """Returns whether ``data`` names node types: a ``HeteroData``, or stores with edge types."""
    return isinstance(data, HeteroData) or (_is_pair(data) and is_typed_pair(data[1]))


def typed_graph_from_pyg(data: Any) -> TypedGraph:
    """Returns the graph of a ``Data``, a ``HeteroData`` or a ``(FeatureStore, GraphStore)`` pair.

    Types and relations are in the order of ``data.metadata()``. Edges are given as ``edge_index``
    or ``adj_t``. Edges that are by destination already are used where they lie; others are sorted
    once, by counting.

    Raises:
        TypeError, ValueError, IndexError: there is no graph, or its arrays do not fit together.
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
