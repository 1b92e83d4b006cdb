"""Makes a data set of PyG's `Data` or `HeteroData`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pyg_batchgnn.data.check import check_dataset
from pyg_batchgnn.data.dataset import SPLITS, Dataset, EdgeSet, NodeSet, count_classes
from pyg_batchgnn.data.errors import DatasetError, broken
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.types import EDGE_FEATURES, EDGES, FEATURES, HOMOGENEOUS, NODES, Group, RowKind

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

#: Attributes that are an error, not left out, if they do not fit.
_CONVENTIONS = {FEATURES: RowKind.NODE, EDGE_FEATURES: RowKind.EDGE}


def from_pyg(
    data: Data | HeteroData, name: str = "pyg", num_classes: int | Mapping[str, int] | None = None
) -> Dataset:
    """Returns the data set in a PyG `Data` or `HeteroData`, which shares its tensors.

    >>> from_pyg(data).num_edges
    600

    Every dense tensor with one row per node or per edge becomes an attribute, with its dtype and
    shape. If a `Data` has as many nodes as edges, names with "edge" in them are of edges, as in
    PyG. `train_mask` (bool [N]) or `train_idx` (node ids) becomes the split "train", and so for val
    and test; masks of two dimensions are attributes. Node types and relations are in the order of
    `data.metadata()`.

    Args:
        data: needs `edge_index`, for every relation.
        name: its name in errors.
        num_classes: the number of classes, by node type if data is a `HeteroData`. None: the
            largest class number in `y` + 1, or 0 if `y` is not one integer per node.

    Warns:
        UserWarning: an entry is left out: it has another number of rows, is sparse, or is no
            tensor.

    Raises:
        DatasetError, TypeError: data is incomplete or inconsistent; an argument has a wrong type.
    """
    from torch_geometric.data import Data, HeteroData

    if not isinstance(data, (Data, HeteroData)):
        raise TypeError(f"data is {type(data).__name__}; pass a torch_geometric.data.Data or HeteroData")
    if isinstance(data, HeteroData):
        return check_dataset(_from_hetero_data(data, name, num_classes))
    if num_classes is not None and not isinstance(num_classes, int):
        raise TypeError(f"num_classes is {num_classes!r}; a Data has one number of classes")
    edges = EdgeSet(HOMOGENEOUS.relations[0], _edges_of(name, data, "edge_index"))
    if data.num_nodes is None:
        raise broken(name, "num_nodes", "is unknown", "set data.num_nodes")
    counts = {NODES: int(data.num_nodes), EDGES: edges.num_edges}
    reader = _Reader(name, "data", data, data.stores[0], counts)
    dataset = Dataset.homogeneous(
        name,
        counts[NODES],
        edges.topology,
        nodes=reader.tables[NODES],
        edges=reader.tables[EDGES],
        splits=reader.splits,
        num_classes=num_classes,
        source="A torch_geometric.data.Data given by the caller.",
    )
    return check_dataset(dataset)


def as_dataset(dataset: Dataset | Data | HeteroData) -> Dataset:
    """Returns a `Dataset` as it is, and a PyG `Data` or `HeteroData` by `from_pyg`. Raises
    `TypeError` for anything else."""
    if isinstance(dataset, Dataset):
        return dataset
    from torch_geometric.data.data import BaseData

    if isinstance(dataset, BaseData):
        return from_pyg(dataset)
    raise TypeError(
        f"dataset must be a Dataset, a Data or a HeteroData, got {type(dataset).__name__}; make one with "
        "load_dataset, from_pyg or Dataset.homogeneous"
    )


def _from_hetero_data(data: HeteroData, name: str, num_classes: int | Mapping[str, int] | None) -> Dataset:
    if num_classes is not None and not isinstance(num_classes, Mapping):
        raise TypeError(f"num_classes is {num_classes!r}; give a HeteroData's by node type, as a mapping")
    for key in data._global_store:
        _leave(name, f"data[{key!r}]", "it belongs to no node type or relation", 4)
    classes = num_classes or {}
    node_types, edge_types = data.metadata()
    if not node_types:
        raise broken(name, "data", "has no node types", "add one, for instance data['paper'].x = x")
    nodes = []
    for node_type in node_types:
        store, where = data[node_type], f"data[{node_type!r}]"
        if store.num_nodes is None:
            raise broken(name, f"{where}.num_nodes", "is unknown", "set it, or an attribute such as x")
        group = Group(RowKind.NODE, node_type)
        reader = _Reader(name, where, data, store, {group: int(store.num_nodes)})
        tables = reader.tables[group]
        given = classes.get(node_type)
        count = count_classes(tables) if given is None else given
        nodes.append(NodeSet(node_type, int(store.num_nodes), tables, reader.splits, count))
    edges = []
    for edge_type in edge_types:
        store, where = data[edge_type], f"data[{edge_type!r}]"
        one = EdgeSet(edge_type, _edges_of(name, store, f"{where}.edge_index"))
        reader = _Reader(name, where, data, store, {one.group: one.num_edges})
        edges.append(replace(one, tables=reader.tables[one.group]))
    source = "A torch_geometric.data.HeteroData given by the caller."
    try:
        dataset = Dataset(name, tuple(nodes), tuple(edges), source)
        dataset.schema.relations_into  # noqa: B018 - refuses relations of unknown types
    except ValueError as error:
        raise DatasetError(f"{name}: {error}") from error
    return dataset


def _edges_of(name: str, store: Any, array: str) -> Tensor | InEdges:
    """Returns the edges in a store: `edge_index`, or the `adj_t` that `Dataset.to_pyg` made."""
    if isinstance(by_target := store.get("adj_t"), InEdges):
        return by_target
    edge_index = store.get("edge_index")
    if edge_index is None:
        raise broken(name, array, "is missing", "set it (an adj_t of others must be converted)")
    if not _is_dense(edge_index):
        raise broken(name, array, f"is {type(edge_index).__name__}", "store a dense tensor")
    found: Tensor = edge_index
    return found


class _Reader:
    """Sorts the entries of a store into attributes and splits. ``where``: the store's name in
    errors. ``counts``: rows by group that the entries can belong to, preferred groups first."""

    def __init__(self, name: str, where: str, data: Any, store: Any, counts: dict[Group, int]) -> None:
        self._name, self._where, self._data, self._store = name, where, data, store
        self._counts = counts
        self.tables: dict[Group, dict[str, Tensor]] = {group: {} for group in counts}
        self.splits: dict[str, Tensor] = {}
        self._nodes = next((count for group, count in counts.items() if group.is_node), None)
        for key, value in store.items():
            if key not in ("edge_index", "num_nodes", "num_edges") and not isinstance(value, InEdges):
                self._take(key, value)

    def _take(self, key: str, value: Any) -> None:
        split, _, form = key.rpartition("_")
        is_split = self._nodes is not None and split in SPLITS and _is_vector(value)
        if is_split and form == "mask":
            if value.dtype is not torch.bool or len(value) != self._nodes:
                fact = f"is {_described(value)}, expected bool [{self._nodes}]"
                raise broken(self._name, key, fact, f"store one boolean per node in {self._where}.{key}")
            self.splits[split] = value.nonzero()[:, 0]
        elif is_split and form == "idx":
            if f"{split}_mask" in self._store and _is_vector(self._store[f"{split}_mask"]):
                self._leave(key, f"{split}_mask gives the split {split!r} already")
            else:
                self.splits[split] = value if value.is_floating_point() else value.to(torch.int64)
        else:
            self._attribute(key, value)

    def _attribute(self, key: str, value: Any) -> None:
        group = self._group_of(key, value)
        kind = _CONVENTIONS.get(key)
        expected = any(one.kind is kind for one in self._counts)
        if expected and value is not None and (group is None or group.kind is not kind):
            assert kind is not None
            fact = f"is {_described(value)}, expected a dense tensor with one row per {kind.value}"
            raise broken(self._name, key, fact, f"correct {self._where}.{key} or delete it")
        if group is None:
            rows = " or ".join(one.kind.value for one in self._counts)
            self._leave(key, f"it is {_described(value)}, not a dense tensor with one row per {rows}")
        else:
            self.tables[group][key] = value

    def _group_of(self, key: str, value: Any) -> Group | None:
        if not _is_dense(value) or value.dim() == 0:
            return None
        if self._data.__cat_dim__(key, value, self._store) != 0:
            return None
        groups = list(self._counts)
        if "edge" in key:
            groups.reverse()
        return next((group for group in groups if self._counts[group] == len(value)), None)

    def _leave(self, key: str, reason: str) -> None:
        words = f"{self._where}.{key}"
        _leave(self._name, key if self._where == "data" else words, reason, 6, words)


def _leave(name: str, key: str, reason: str, level: int, words: str | None = None) -> None:
    warnings.warn(
        f"{name}: {key} is left out: {reason}; delete {words or key} and keep it apart",
        UserWarning,
        stacklevel=level + 1,
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
