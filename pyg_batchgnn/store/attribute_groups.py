"""The groups of the attributes of a feature store."""

from __future__ import annotations

import copy
from typing import Any

from torch_geometric.data import FeatureStore, TensorAttr

from pyg_batchgnn.data import Group, Schema
from pyg_batchgnn.store.pyg_remote import stored_rows
from pyg_batchgnn.store.tensor_attr import group_of
from pyg_batchgnn.store.typed_graph import TypedGraph


class AttributeGroups:
    """Finds the group of each attribute of a feature store.

    A store without types may hold attributes of edges under the name of the nodes. The number of
    rows tells them apart, as in a ``Data``.

    Args:
        features: the feature store.
        graph: the graph.
    """

    def __init__(self, features: FeatureStore, graph: TypedGraph) -> None:
        self._features, self._graph = features, graph
        self._known: dict[tuple[Any, Any], Group] = {}

    @property
    def schema(self) -> Schema:
        """The schema of the graph."""
        return self._graph.schema

    def of(self, attr: TensorAttr) -> Group:
        """Returns the group of an attribute, which may be none of the graph's."""
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
