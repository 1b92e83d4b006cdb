"""One attribute of all groups of a graph, whole, from what PyG's loaders accept as ``data``."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn.data import EDGES, HOMOGENEOUS, NODES, Group, RowKind, Schema
from pyg_batchgnn.store.tensor_attr import group_of


def attribute_by_group(data: Any, name: str, schema: Schema) -> dict[Group, Tensor]:
    """Returns the attribute ``name`` of every group of nodes or edges that has it, with all rows.

    Args:
        data: a ``Data``, a ``HeteroData`` or a ``(FeatureStore, GraphStore)`` pair.
        name: the attribute's name.
        schema: the schema of its graph.
    """
    if isinstance(data, HeteroData):
        return _of_hetero_data(data, name, schema)
    if isinstance(data, Data):
        return _of_data(data, name)
    return _of_store(data[0], name, schema)


def _of_data(data: Data, name: str) -> dict[Group, Tensor]:
    if name not in data:
        return {}
    if data.is_node_attr(name):
        return {NODES: _tensor(data[name])}
    return {EDGES: _tensor(data[name])} if data.is_edge_attr(name) else {}


def _of_hetero_data(data: HeteroData, name: str, schema: Schema) -> dict[Group, Tensor]:
    groups = [*schema.node_groups, *schema.edge_groups]
    return {group: _tensor(data[group.name][name]) for group in groups if name in data[group.name]}


def _of_store(features: Any, name: str, schema: Schema) -> dict[Group, Tensor]:
    known = {*schema.node_groups, *schema.edge_groups}
    found = {}
    for attr in map(copy.copy, features.get_all_tensor_attrs()):
        group = typed_group_of(attr, schema)
        if attr.attr_name == name and group in known:
            attr.index = None  # all rows
            found[group] = _tensor(features.get_tensor(attr))
    return found


def typed_group_of(attr: Any, schema: Schema) -> Group:
    """Returns the group of an attribute of a feature store, in a graph with a schema."""
    if schema == HOMOGENEOUS:
        return group_of(attr)
    kind = RowKind.EDGE if isinstance(attr.group_name, tuple) else RowKind.NODE
    return Group(kind, attr.group_name)


def _tensor(value: Any) -> Tensor:
    return torch.from_numpy(np.asarray(value)) if isinstance(value, np.ndarray) else value
