"""Reads the arrays of a data set's folder, of either version or made by hand."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.data.convert import to_features, to_index, to_targets
from pyg_batchgnn.data.dataset import SPLITS
from pyg_batchgnn.data.errors import DatasetNotFoundError, broken, missing
from pyg_batchgnn.data.files import META_FILE, as_tensor, map_tensor, open_npy
from pyg_batchgnn.data.groups import EDGE_FEATURES, EDGES, FEATURES, LABELS, NODES, Group
from pyg_batchgnn.data.layout import (
    FOLDERS,
    SPLITS_FOLDER,
    attribute_array,
    attribute_of,
    split_array,
    split_of,
)
from pyg_batchgnn.data.meta import read_meta
from pyg_batchgnn.data.parquet import parquet_files, read_parquet_edges

#: Attributes that may lie in the folder itself, as in version 1 and in folders made by hand.
_CONVENTIONS: dict[str, tuple[Group, Callable[[np.ndarray, str | Path, str], Tensor]]] = {
    FEATURES: (NODES, to_features),
    LABELS: (NODES, to_targets),
    EDGE_FEATURES: (EDGES, to_features),
}
_EDGES = ("edge_index", "src", "dst")
_MASKS = tuple(f"{name}_mask" for name in SPLITS)
_INDICES = tuple(f"{name}_idx" for name in SPLITS)


class FolderReader:
    """One folder that is being read.

    Attributes:
        files: the file that each array came from, by the name that `check_dataset` uses.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.meta = read_meta(path)
        self.files: dict[str, str | Path] = {}
        for array in self.meta.arrays:
            if not self.file(array).is_file():
                raise missing(
                    self.file(array), array_name(array), f"{META_FILE} promises it: make the folder again"
                )

    def file(self, array: str) -> Path:
        """Returns the file of an array."""
        return self.path / f"{array}.npy"

    def open(self, array: str, stands_for: str | None = None) -> Tensor | None:
        """Maps an array that agrees with META.json; None where the folder has no such file."""
        file = self.file(array)
        if not file.is_file():
            return None
        self.files[stands_for or array] = file
        if not self.meta.arrays:
            return as_tensor(open_npy(file, array_name(array)), file, array_name(array))
        if array not in self.meta.arrays:
            fact = f"{META_FILE} does not know this array"
            raise broken(file, array_name(array), fact, "remove the file or make the folder again")
        return map_tensor(file, array_name(array), self.meta.arrays[array])

    def edge_index(self) -> Tensor:
        """Returns the edges, [2, E]."""
        values = self.open("edge_index")
        found = self._edges_from_columns() if values is None else values.numpy()
        return to_index(found, self.files["edge_index"], "edge_index")

    def _edges_from_columns(self) -> np.ndarray:
        """Reads edges from src.npy and dst.npy, or from Parquet, into memory: they lie apart on
        disk."""
        source, destination = self.open("src"), self.open("dst")
        if source is not None and destination is not None:
            if source.shape != destination.shape or source.dim() != 1:
                fact = f"shape is {list(destination.shape)}, src.npy has {list(source.shape)}"
                raise broken(self.files["dst"], "dst", fact, "both must be [E]")
            for array, values in (("src", source), ("dst", destination)):
                to_index(values[:0].numpy(), self.files[array], array)
            self.files["edge_index"] = self.files["src"]
            return np.stack([source.numpy(), destination.numpy()])
        if files := parquet_files(self.path):
            self.files["edge_index"] = files[0] if len(files) == 1 else self.path / "edges*.parquet"
            return read_parquet_edges(files)
        if source is not None or destination is not None:
            absent = "src" if source is None else "dst"
            raise missing(self.file(absent), absent, "edges need both src.npy and dst.npy")
        raise DatasetNotFoundError(
            f"{self.path}: edge_index: the folder has no edges; "
            "put edge_index.npy, src.npy and dst.npy, or edges*.parquet there"
        )

    def attributes(self) -> dict[Group, dict[str, Tensor]]:
        """Returns the attributes by group and name."""
        tables: dict[Group, dict[str, Tensor]] = {NODES: {}, EDGES: {}}
        for folder in FOLDERS.values():
            for array in self._arrays_in(folder):
                values, attribute = self.open(array), attribute_of(array)
                assert values is not None and attribute is not None
                tables[attribute[0]][attribute[1]] = values
        for name, (group, convert) in _CONVENTIONS.items():
            twice = name in tables[group]
            values = self.open(name, attribute_array(group, name))
            if values is None:
                continue
            if twice:
                fact = f"{attribute_array(group, name)}.npy is there too"
                raise broken(self.file(name), name, fact, "remove one of the two")
            tables[group][name] = convert(values.numpy(), self.file(name), name)
        return tables

    def _arrays_in(self, folder: str) -> list[str]:
        return [f"{folder}/{path.stem}" for path in sorted((self.path / folder).glob("*.npy"))]

    def splits(self, num_nodes: int) -> dict[str, Tensor]:
        """Returns the node ids of each split."""
        found = {}
        for array in self._arrays_in(SPLITS_FOLDER):
            values, split = self.open(array), split_of(array)
            assert values is not None and split is not None
            found[split[1]] = to_index(values.numpy(), self.file(array), split[1]).to(torch.int64)
        for name in SPLITS:
            arrays = [array for array in (f"{name}_idx", f"{name}_mask") if self.file(array).is_file()]
            if len(arrays) + (name in found) > 1:
                fact = f"{arrays[0] if len(arrays) > 1 else split_array(NODES, name)}.npy is there too"
                raise broken(self.file(arrays[-1]), arrays[-1], fact, "remove one of the two")
            if arrays:
                found[name] = self._split(name, arrays[0], num_nodes)
        return found

    def _split(self, name: str, array: str, num_nodes: int) -> Tensor:
        tensor = self.open(array, split_array(NODES, name))
        assert tensor is not None
        values = tensor.numpy()
        if array in _INDICES:
            return to_index(values, self.file(array), array).to(torch.int64)
        if values.dtype not in (np.dtype(np.bool_), np.dtype(np.uint8)) or values.shape != (num_nodes,):
            fact = f"is {values.dtype} {list(values.shape)}, expected bool [{num_nodes}]"
            raise broken(self.file(array), array, fact, "store one boolean per node")
        return torch.from_numpy(np.flatnonzero(values).astype(np.int64))

    def num_nodes(self, edge_index: Tensor, tables: dict[str, Tensor]) -> int:
        """Returns the number of nodes.

        It is META.json's, else that of the rows of an attribute or a mask, else the largest id + 1.
        """
        if self.meta.num_nodes is not None:
            return self.meta.num_nodes
        conventions = [tables[name] for name in (FEATURES, LABELS) if name in tables]
        for values in (*conventions, *tables.values(), *map(self.open, _MASKS)):
            if values is not None and values.dim():
                return len(values)
        return int(edge_index.max()) + 1 if edge_index.numel() else 0

    def warn_of_unread(self) -> None:
        """Warns of arrays in the folder itself that have no meaning."""
        known = {*_EDGES, *_CONVENTIONS, *_MASKS, *_INDICES}
        for path in sorted(self.path.glob("*.npy")):
            if path.stem not in known:
                warnings.warn(
                    f"{path}: is not read. Put it into nodes/ (one row per node), edges/ (one row per edge) "
                    "or splits/ (node ids), or remove it",
                    UserWarning,
                    stacklevel=5,
                )


def array_name(array: str) -> str:
    """Returns an array's name as errors give it."""
    return array.rpartition("/")[2]
