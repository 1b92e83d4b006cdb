"""Takes a graph out of PyG's `Data`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pyg_batchgnn.data.check import check_dataset
from pyg_batchgnn.data.dataset import Dataset
from pyg_batchgnn.data.errors import broken

if TYPE_CHECKING:
    from torch_geometric.data import Data


def from_pyg(data: Data, name: str = "pyg", num_classes: int | None = None) -> Dataset:
    """The data set in a PyG `Data`; its tensors are shared where their types allow.

    Args:
        data: needs `edge_index`; `x`, `y`, `edge_attr`, and splits as boolean `train_mask` or as `train_idx`
            (and so for val and test) are taken where present. A split that is absent is empty.
        name: name to give it, used in errors.
        num_classes: number of classes; the largest label + 1 without it.

    Raises:
        TypeError: not a `Data`.
        DatasetError: an array that does not fit, named as the attribute it came from.
    """
    from torch_geometric.data import Data, HeteroData

    if isinstance(data, HeteroData):
        raise broken(name, "data", "is a HeteroData", "heterogeneous graphs are still to come: pass a Data")
    if not isinstance(data, Data):
        raise TypeError(f"data is {type(data).__name__}; pass a torch_geometric.data.Data")
    num_nodes = data.num_nodes
    if num_nodes is None or "edge_index" not in data:
        raise broken(name, "edge_index", "is missing", "set data.edge_index (an adj_t must be converted)")
    labels = _labels(name, data, num_nodes)
    if num_classes is None:
        num_classes = max(int(labels.max()) + 1, 0) if len(labels) else 0
    dataset = Dataset(
        name=name,
        num_nodes=int(num_nodes),
        num_classes=num_classes,
        edge_index=_tensor(name, "edge_index", data.edge_index),
        x=_features(name, data),
        y=labels,
        train_idx=_split(name, data, "train"),
        val_idx=_split(name, data, "val"),
        test_idx=_split(name, data, "test"),
        source="A torch_geometric.data.Data given by the caller.",
        edge_attr=data.edge_attr if "edge_attr" in data else None,
    )
    return check_dataset(dataset)


def _tensor(name: str, array: str, value: Any) -> Tensor:
    if not isinstance(value, Tensor) or value.layout is not torch.strided:
        raise broken(name, array, f"is {type(value).__name__}", "store a dense tensor")
    return value


def _features(name: str, data: Data) -> Tensor | None:
    if data.x is None:
        return None
    x = _tensor(name, "x", data.x)
    return x.float() if x.dtype in (torch.float64, torch.bfloat16) or not x.is_floating_point() else x


def _labels(name: str, data: Data, num_nodes: int) -> Tensor:
    if data.y is None:
        return torch.full((num_nodes,), -1, dtype=torch.int64)
    y = _tensor(name, "y", data.y)
    if y.dim() == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.dim() != 1 or y.is_floating_point() or y.dtype is torch.bool:
        fact = f"is {str(y.dtype).removeprefix('torch.')} {list(y.shape)}, expected one class number a node"
        raise broken(name, "y", fact, "convert it to int64 [N]")
    return y.to(torch.int64)


def _split(name: str, data: Data, part: str) -> Tensor:
    """Node ids of one split, from `{part}_mask` or `{part}_idx`."""
    mask_name, index_name = f"{part}_mask", f"{part}_idx"
    if mask_name in data and data[mask_name] is not None:
        mask = _tensor(name, mask_name, data[mask_name])
        if mask.dtype is not torch.bool or mask.dim() != 1 or len(mask) != data.num_nodes:
            seen = f"{str(mask.dtype).removeprefix('torch.')} {list(mask.shape)}"
            fact = f"is {seen}, expected bool [{data.num_nodes}]"
            remedy = f"choose one column: data.{mask_name} = data.{mask_name}[:, 0]"
            raise broken(name, mask_name, fact, remedy)
        return mask.nonzero()[:, 0]
    if index_name in data and data[index_name] is not None:
        index = _tensor(name, index_name, data[index_name])
        return index if index.is_floating_point() else index.to(torch.int64)
    return torch.empty(0, dtype=torch.int64)
