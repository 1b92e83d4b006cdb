"""Takes a graph out of PyG's `Data`."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pyg_batchgnn.data.check import check_dataset
from pyg_batchgnn.data.dataset import SPLITS, Dataset
from pyg_batchgnn.data.errors import broken
from pyg_batchgnn.data.groups import EDGE_FEATURES, EDGES, FEATURES, NODES, Group

if TYPE_CHECKING:
    from torch_geometric.data import Data

#: Attributes that are refused, not left out, where they do not fit.
_CONVENTIONS = {FEATURES: NODES, EDGE_FEATURES: EDGES}
_NO_ATTRIBUTES = ("edge_index", "num_nodes")


def from_pyg(data: Data, name: str = "pyg", num_classes: int | None = None) -> Dataset:
    """Returns the data set in a PyG `Data`, which shares its tensors.

    Every dense tensor with one row per node or per edge becomes an attribute, with its dtype and
    shape. Where there are as many nodes as edges, names with "edge" in them are of edges, as in
    PyG. `train_mask` (bool [N]) or `train_idx` (node ids) becomes the split "train", and so for val
    and test; masks of two dimensions are attributes. `Dataset.to_pyg` gives the same `Data` back,
    with masks for splits.

    Args:
        data: needs `edge_index`.
        name: the name to give it, used in errors.
        num_classes: the number of classes. Without it the largest class number in `y` + 1, or 0
            where `y` is not one integer per node.

    Warns:
        UserWarning: something cannot be carried: a tensor of another number of rows, a sparse
            tensor, or what is not a tensor. The warning names it.

    Raises:
        TypeError: `data` is not a `Data`.
        DatasetError: an array does not fit. The message names the attribute.
    """
    from torch_geometric.data import Data, HeteroData

    if isinstance(data, HeteroData):
        remedy = "heterogeneous graphs are not supported yet: pass a Data"
        raise broken(name, "data", "is a HeteroData", remedy)
    if not isinstance(data, Data):
        raise TypeError(f"data is {type(data).__name__}; pass a torch_geometric.data.Data")
    if data.num_nodes is None or "edge_index" not in data:
        raise broken(name, "edge_index", "is missing", "set data.edge_index (an adj_t must be converted)")
    edge_index = data.edge_index
    if not _is_dense(edge_index):
        raise broken(name, "edge_index", f"is {type(edge_index).__name__}", "store a dense tensor")
    reader = _Reader(name, data, int(data.num_nodes), int(edge_index.shape[-1]))
    for key, value in data.stores[0].items():
        if key not in _NO_ATTRIBUTES:
            reader.take(key, value)
    dataset = Dataset.homogeneous(
        name,
        reader.num_nodes,
        edge_index,
        nodes=reader.tables[NODES],
        edges=reader.tables[EDGES],
        splits=reader.splits,
        num_classes=num_classes,
        source="A torch_geometric.data.Data given by the caller.",
    )
    return check_dataset(dataset)


def as_dataset(dataset: Dataset | Data) -> Dataset:
    """Returns a data set as it is, and that in a PyG `Data` by `from_pyg`.

    Raises:
        TypeError: it is neither.
        DatasetError: an array of the `Data` does not fit.
    """
    if isinstance(dataset, Dataset):
        return dataset
    from torch_geometric.data.data import BaseData

    if isinstance(dataset, BaseData):
        return from_pyg(dataset)
    raise TypeError(
        f"dataset must be a Dataset or a Data, got {type(dataset).__name__}; make one with load_dataset, "
        "from_pyg or Dataset.homogeneous"
    )


class _Reader:
    """Sorts the entries of a `Data` into attributes and splits."""

    def __init__(self, name: str, data: Data, num_nodes: int, num_edges: int) -> None:
        self.name, self.data = name, data
        self.num_nodes, self.num_edges = num_nodes, num_edges
        self.tables: dict[Group, dict[str, Tensor]] = {NODES: {}, EDGES: {}}
        self.splits: dict[str, Tensor] = {}

    def take(self, key: str, value: Any) -> None:
        """Takes one entry, or says why not."""
        split, _, form = key.rpartition("_")
        if split in SPLITS and form == "mask" and _is_vector(value):
            self.splits[split] = self._masked(key, value)
        elif split in SPLITS and form == "idx" and _is_vector(value):
            self._index(split, key, value)
        else:
            self._attribute(key, value)

    def _attribute(self, key: str, value: Any) -> None:
        group = self._group_of(key, value)
        if key in _CONVENTIONS and group is not _CONVENTIONS[key] and value is not None:
            expected = "edge" if _CONVENTIONS[key].is_edge else "node"
            fact = f"is {_described(value)}, expected a dense tensor with one row per {expected}"
            raise broken(self.name, key, fact, f"correct data.{key} or delete it")
        if group is None:
            self._leave(key, f"it is {_described(value)}, not a dense tensor with one row per node or edge")
        else:
            self.tables[group][key] = value

    def _group_of(self, key: str, value: Any) -> Group | None:
        """Returns the group that a value has a row for each member of, or None."""
        if not _is_dense(value) or value.dim() == 0 or self.data.__cat_dim__(key, value) != 0:
            return None
        groups = [EDGES, NODES] if "edge" in key else [NODES, EDGES]
        counts = {NODES: self.num_nodes, EDGES: self.num_edges}
        return next((group for group in groups if counts[group] == len(value)), None)

    def _masked(self, key: str, mask: Tensor) -> Tensor:
        if mask.dtype is not torch.bool or len(mask) != self.num_nodes:
            fact = f"is {_described(mask)}, expected bool [{self.num_nodes}]"
            raise broken(self.name, key, fact, f"store one boolean per node in data.{key}")
        return mask.nonzero()[:, 0]

    def _index(self, split: str, key: str, index: Tensor) -> None:
        if f"{split}_mask" in self.data and _is_vector(self.data[f"{split}_mask"]):
            self._leave(key, f"{split}_mask gives the split {split!r} already")
        else:
            self.splits[split] = index if index.is_floating_point() else index.to(torch.int64)

    def _leave(self, key: str, reason: str) -> None:
        warnings.warn(
            f"{self.name}: {key} is left out: {reason}; delete data.{key} and keep it apart",
            UserWarning,
            stacklevel=5,
        )


def _is_dense(value: Any) -> bool:
    return isinstance(value, Tensor) and value.layout is torch.strided and not value.is_quantized


def _is_vector(value: Any) -> bool:
    return _is_dense(value) and value.dim() == 1


def _described(value: Any) -> str:
    if not isinstance(value, Tensor):
        return "None" if value is None else f"a {type(value).__name__}"
    layout = "" if value.layout is torch.strided else "sparse "
    return f"{layout}{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
