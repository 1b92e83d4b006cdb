"""A graph with attributes and splits, wherever it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pyg_batchgnn.data.errors import broken
from pyg_batchgnn.data.groups import EDGES, FEATURES, NODES, AttributeGroup, Group
from pyg_batchgnn.data.labels import count_classes

if TYPE_CHECKING:
    from torch_geometric.data import Data

#: The splits that training uses.
SPLITS = ("train", "val", "test")


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A homogeneous graph. Readers return only what `check_dataset` has passed.

    Tensors read from a folder are mapped from its files. Reading touches only the pages used.
    Writing to one changes this process's copy, never the file.

    Attributes:
        name: the short name, as `load_dataset` knows it.
        num_nodes: the number of nodes N; node ids are 0 to N - 1.
        num_classes: the number of classes C; 0 where the labels "y" are no class numbers, or are
            absent.
        edge_index: [2, E] int32 or int64, (source, destination) of each edge. An edge's position is
            its id.
        attributes: the attributes of each group, of any dtype and shape. By convention "x" are the
            features of nodes, "y" their labels (class numbers 0 to C - 1, or -1 where a node has
            none) and "edge_attr" the features of edges.
        splits: the node ids of each split, int64. "train", "val" and "test" are disjoint.
        source: one sentence that says where the data came from.
    """

    name: str
    num_nodes: int
    num_classes: int
    edge_index: Tensor
    attributes: list[AttributeGroup]
    splits: dict[str, Tensor]
    source: str

    @classmethod
    def homogeneous(
        cls,
        name: str,
        num_nodes: int,
        edge_index: Tensor,
        *,
        nodes: Mapping[str, Tensor] | None = None,
        edges: Mapping[str, Tensor] | None = None,
        splits: Mapping[str, Tensor] | None = None,
        num_classes: int | None = None,
        source: str = "Given by the caller.",
    ) -> Dataset:
        """Makes a graph of one node type and one relation. Nothing is copied or checked.

        Args:
            name: the short name, used in errors.
            num_nodes: the number of nodes N.
            edge_index: [2, E] int32 or int64.
            nodes: attributes of nodes by name, [N, ...] each.
            edges: attributes of edges by name, [E, ...] each.
            splits: node ids by name of the split, int64.
            num_classes: the number of classes; without it the largest class number + 1
                (`count_classes`).
            source: where the data came from.
        """
        tables = dict(nodes or {})
        return cls(
            name=name,
            num_nodes=num_nodes,
            num_classes=count_classes(tables) if num_classes is None else num_classes,
            edge_index=edge_index,
            attributes=[
                AttributeGroup(NODES, num_nodes, tables),
                AttributeGroup(EDGES, edge_index.shape[-1], dict(edges or {})),
            ],
            splits=dict(splits or {}),
            source=source,
        )

    @property
    def num_edges(self) -> int:
        """The number of stored (directed) edges E."""
        return int(self.edge_index.shape[1])

    @property
    def nodes(self) -> AttributeGroup:
        """The attributes of the nodes."""
        return self.group(NODES)

    @property
    def edges(self) -> AttributeGroup:
        """The attributes of the edges."""
        return self.group(EDGES)

    @property
    def num_features(self) -> int:
        """The number of feature columns F; 0 without features of two dimensions."""
        x = self.nodes.tables.get(FEATURES)
        return int(x.shape[1]) if x is not None and x.dim() == 2 else 0

    def group(self, group: Group) -> AttributeGroup:
        """Returns the attributes of a group.

        Raises:
            KeyError: the graph has no such group.
        """
        for found in self.attributes:
            if found.group == group:
                return found
        raise KeyError(f"{self.name} has no group {group}; it has {[str(a.group) for a in self.attributes]}")

    def split(self, name: str) -> Tensor:
        """Returns the node ids of a split, int64; none where there is no such split."""
        return self.splits.get(name, torch.empty(0, dtype=torch.int64))

    def __repr__(self) -> str:
        sizes = "/".join(f"{len(self.split(name)):,}" for name in SPLITS)
        return (
            f"Dataset({self.name}: {self.num_nodes:,} nodes, {self.num_edges:,} edges, "
            f"{self.num_features} features, {self.num_classes} classes, {sizes} train/val/test nodes)"
        )

    def to_pyg(self, feature_dtype: torch.dtype | None = None) -> Data:
        """Returns the same graph as PyG's `Data`, which shares its tensors.

        `edge_index` becomes int64. Splits become boolean masks [N], such as `train_mask`.

        Args:
            feature_dtype: the dtype that `x` is converted to; without it `x` stays as it is.

        Raises:
            DatasetError: two attributes, or an attribute and a mask, have the same name.
        """
        from torch_geometric.data import Data

        data = Data(edge_index=self.edge_index.to(torch.int64), num_nodes=self.num_nodes)
        named = [(name, table) for found in self.attributes for name, table in found.tables.items()]
        masks = [(f"{name}_mask", self._mask(index)) for name, index in self.splits.items()]
        for name, tensor in named + masks:
            if name in data:
                fact = "is there twice, which a Data cannot hold"
                raise broken(self.name, name, fact, "rename one of them")
            data[name] = tensor
        if feature_dtype is not None and FEATURES in data:
            data[FEATURES] = data[FEATURES].to(feature_dtype)
        return data

    def _mask(self, index: Tensor) -> Tensor:
        mask = torch.zeros(self.num_nodes, dtype=torch.bool)
        mask[index] = True
        return mask
