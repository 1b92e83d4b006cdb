"""A graph with features, labels and a split, wherever it came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch_geometric.data import Data


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """One homogeneous graph for node classification; readers return only what `check_dataset` has passed.

    Tensors read from a folder are mapped from its files: reading touches only the pages used, and writing to
    one changes this process's copy, never the file.

    Attributes:
        name: short name, as `load_dataset` knows it.
        num_nodes: number of nodes N; node ids are 0..N-1.
        num_classes: number of classes C.
        edge_index: [2, E] int32 or int64, (source, destination) of each edge; its position is the edge's id.
        x: [N, F] float16 or float32 features, or None.
        y: [N] int64 classes 0..C-1, or -1 where a node has no label.
        train_idx: int64 node ids; the three splits are disjoint and hold labelled nodes only.
        val_idx: int64 node ids.
        test_idx: int64 node ids.
        source: one sentence saying where the data came from.
        edge_attr: [E] or [E, D] floating point attributes of the edges, or None.
    """

    name: str
    num_nodes: int
    num_classes: int
    edge_index: Tensor
    x: Tensor | None
    y: Tensor
    train_idx: Tensor
    val_idx: Tensor
    test_idx: Tensor
    source: str
    edge_attr: Tensor | None = None

    @property
    def num_edges(self) -> int:
        """Number of stored (directed) edges E."""
        return int(self.edge_index.shape[1])

    @property
    def num_features(self) -> int:
        """Number of feature columns F; 0 without features."""
        return 0 if self.x is None else int(self.x.shape[1])

    def __repr__(self) -> str:
        return (
            f"Dataset({self.name}: {self.num_nodes:,} nodes, {self.num_edges:,} edges, "
            f"{self.num_features} features, {self.num_classes} classes, "
            f"{len(self.train_idx):,}/{len(self.val_idx):,}/{len(self.test_idx):,} train/val/test nodes)"
        )

    def to_pyg(self, feature_dtype: torch.dtype = torch.float32) -> Data:
        """The same graph as PyG's `Data`.

        `edge_index` becomes int64 and `x` becomes `feature_dtype` (a tensor that already has the type is
        shared, not copied); splits become boolean `train_mask`, `val_mask` and `test_mask` of shape [N].
        """
        from torch_geometric.data import Data

        data = Data(edge_index=self.edge_index.to(torch.int64), y=self.y)
        data.num_nodes = self.num_nodes
        if self.x is not None:
            data.x = self.x.to(feature_dtype)
        if self.edge_attr is not None:
            data.edge_attr = self.edge_attr
        data.train_mask = self._mask(self.train_idx)
        data.val_mask = self._mask(self.val_idx)
        data.test_mask = self._mask(self.test_idx)
        return data

    def _mask(self, index: Tensor) -> Tensor:
        mask = torch.zeros(self.num_nodes, dtype=torch.bool)
        mask[index] = True
        return mask
