"""One attribute of all groups of a graph, whole, from what PyG's loaders accept as ``data``."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn.data import EDGES, NODES, Group, Schema
from pyg_batchgnn.store.attribute_groups import AttributeGroups
from pyg_batchgnn.store.typed_graph import TypedGraph


def attribute_by_group(data: Any, name: str, graph: TypedGraph) -> dict[Group, Tensor]:
    """Returns the attribute ``name`` of every group of nodes or edges that has it, with all rows.

    Args:
        data: a ``Data``, a ``HeteroData`` or a ``(FeatureStore, GraphStore)`` pair.
        name: the attribute's name.
        graph: its graph.

    Raises:
        ValueError: a ``Data`` has the attribute, but not one row per node or per edge.
    """
    if isinstance(data, HeteroData):
        return _of_hetero_data(data, name, graph.schema)
    if isinstance(data, Data):
        return _of_data(data, name)
    return _of_store(data[0], name, graph)


def weight_by_group(data: Any, name: str, graph: TypedGraph) -> dict[Group, Tensor]:
    """Returns an attribute that holds weights of edges, by group; see `attribute_by_group`.

    In a graph without types that has as many edges as nodes, PyG calls an attribute one of nodes
    unless its name says otherwise. Weights are those of the edges, whatever their name.
    """
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


def _of_hetero_data(data: HeteroData, name: str, schema: Schema) -> dict[Group, Tensor]:
    groups = [*schema.node_groups, *schema.edge_groups]
    return {group: _tensor(data[group.name][name]) for group in groups if name in data[group.name]}


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
