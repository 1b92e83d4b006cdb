"""Feature and graph stores in memory, as a user would write them for PyG."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, FeatureStore, TensorAttr
from torch_geometric.testing import MyGraphStore

#: Group of edge attributes.
EDGES = ("node", "to", "node")


class Features(FeatureStore):
    """A feature store of tables by (group, name), which counts requests."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[tuple[Any, Any], Tensor] = {}
        self.attrs: dict[tuple[Any, Any], TensorAttr] = {}
        self.requests: list[int] = []

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        key = (attr.group_name, attr.attr_name)
        self.tables[key] = tensor
        self.attrs[key] = TensorAttr(*key)
        return True

    def _get_tensor(self, attr: TensorAttr) -> Tensor:
        table = self.tables[attr.group_name, attr.attr_name]
        return table if attr.index is None else table[attr.index]

    def _multi_get_tensor(self, attrs: list[TensorAttr]) -> list[Any]:
        self.requests.append(len(attrs))
        return [self._get_tensor(attr) for attr in attrs]

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        return self.tables.pop((attr.group_name, attr.attr_name), None) is not None

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...]:
        return tuple(self.tables[attr.group_name, attr.attr_name].shape)

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        return list(self.attrs.values())


def stores_of(data: Data, layout: str) -> tuple[Features, MyGraphStore]:
    """``data`` as a pair of stores; its edges must lie in the layout's order."""
    features, graph = Features(), MyGraphStore()
    for name in ("x", "y"):
        features.put_tensor(data[name], group_name="node", attr_name=name, index=None)
    features.put_tensor(data.edge_attr, group_name=EDGES, attr_name="edge_attr", index=None)
    source, destination = data.edge_index
    size = (data.num_nodes, data.num_nodes)
    sources, destinations = (_pointers(ends, size[0]) for ends in (source, destination))
    edges = {"coo": (source, destination), "csc": (source, destinations), "csr": (sources, destination)}
    graph.put_edge_index(edges[layout], edge_type=None, layout=layout, size=size)
    return features, graph


def _pointers(ids: Tensor, nodes: int) -> Tensor:
    return torch.cat([torch.zeros(1, dtype=torch.long), torch.bincount(ids, minlength=nodes).cumsum(0)])
