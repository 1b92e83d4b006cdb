"""Reads a data set from a folder of .npy arrays or Parquet edge files, and writes one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.data.check import check_dataset, check_outline
from pyg_batchgnn.data.convert import to_features, to_index, to_labels
from pyg_batchgnn.data.dataset import Dataset
from pyg_batchgnn.data.errors import DatasetNotFoundError, broken, missing
from pyg_batchgnn.data.files import META_FILE, check_sha256, open_npy
from pyg_batchgnn.data.meta import check_against_meta, read_meta
from pyg_batchgnn.data.parquet import parquet_files, read_parquet_edges

_SPLITS = ("train", "val", "test")


class _Folder:
    """One folder being read; remembers which file each array came from."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.meta = read_meta(path)
        self.files: dict[str, str | Path] = {}
        for array, promise in self.meta.arrays.items():
            if not (path / str(promise["file"])).is_file():
                raise missing(
                    path / str(promise["file"]), array, f"{META_FILE} promises it: make the folder again"
                )

    def open(self, array: str) -> np.ndarray | None:
        """Map `{array}.npy`, checked against META.json; None where the folder has no such file."""
        file = self.path / f"{array}.npy"
        if not file.is_file():
            return None
        values = open_npy(file, array)
        check_against_meta(self.meta, file, array, values)
        self.files[array] = file
        return values

    def edge_index(self) -> Tensor:
        values = self.open("edge_index")
        if values is None:
            values = self._edges_from_columns()
        return to_index(values, self.files["edge_index"], "edge_index")

    def _edges_from_columns(self) -> np.ndarray:
        """Edges from src.npy and dst.npy, or from Parquet: read into memory, for they lie apart on disk."""
        source, destination = self.open("src"), self.open("dst")
        if source is not None and destination is not None:
            if source.shape != destination.shape or source.ndim != 1:
                fact = f"shape is {list(destination.shape)}, src.npy has {list(source.shape)}"
                raise broken(self.files["dst"], "dst", fact, "both must be [E]")
            for array, values in (("src", source), ("dst", destination)):
                to_index(values[:0], self.files[array], array)
            self.files["edge_index"] = self.files["src"]
            return np.stack([source, destination])
        if files := parquet_files(self.path):
            self.files["edge_index"] = files[0] if len(files) == 1 else self.path / "edges*.parquet"
            return read_parquet_edges(files)
        if source is not None or destination is not None:
            absent = "src" if source is None else "dst"
            raise missing(self.path / f"{absent}.npy", absent, "edges need both src.npy and dst.npy")
        raise DatasetNotFoundError(
            f"{self.path}: edge_index: the folder has no edges; "
            "put edge_index.npy, src.npy and dst.npy, or edges*.parquet there"
        )

    def split(self, part: str, num_nodes: int) -> Tensor:
        """Node ids of a split from `{part}_idx.npy` or `{part}_mask.npy`; empty without either."""
        index, mask = self.open(f"{part}_idx"), self.open(f"{part}_mask")
        if index is not None and mask is not None:
            file = self.files[f"{part}_mask"]
            raise broken(file, f"{part}_mask", f"{part}_idx.npy is there too", "remove one of the two")
        if index is not None:
            return to_index(index, self.files[f"{part}_idx"], f"{part}_idx").to(torch.int64)
        if mask is None:
            return torch.empty(0, dtype=torch.int64)
        self.files[f"{part}_idx"] = file = self.files[f"{part}_mask"]
        if mask.dtype not in (np.dtype(np.bool_), np.dtype(np.uint8)) or mask.shape != (num_nodes,):
            fact = f"is {mask.dtype} {list(mask.shape)}, expected bool [{num_nodes}]"
            raise broken(file, f"{part}_mask", fact, "store one boolean a node")
        return torch.from_numpy(np.flatnonzero(mask).astype(np.int64))


def read_folder(path: str | Path) -> Dataset:
    """Read a data set from a folder.

    Edges: `edge_index.npy` [2, E] (mapped), or `src.npy` and `dst.npy` [E], or `edges*.parquet` with
    columns src and dst (both read into memory). The rest is optional: `x.npy` [N, F] and `edge_attr.npy`
    [E, D] (mapped), `y.npy` [N], and each of train, val and test as `train_idx.npy` (node ids) or
    `train_mask.npy` (bool [N]). META.json, where present, gives name, source, num_nodes and num_classes,
    and, in folders that this package wrote, dtype, shape and checksum of every array, which are compared.

    Raises:
        DatasetNotFoundError: no such folder, or no edges in it.
        DatasetError: a damaged, foreign or inconsistent file.
    """
    dataset, files = _read(path)
    return check_dataset(replace(dataset, y=dataset.y.contiguous()), files)


def open_folder(path: str | Path) -> Dataset:
    """As `read_folder`, but node ids, labels and features are not looked at: for `partition`, where each rank
    reads some of them and checks what it needs, and for folders that were checked before.

    Raises:
        DatasetNotFoundError, DatasetError: as `read_folder`, from counts, shapes, dtypes and checksums.
    """
    return check_outline(*_read(path))


def _read(path: str | Path) -> tuple[Dataset, dict[str, str | Path]]:
    """The data set and the file of each array."""
    path = Path(path).expanduser()
    if not path.is_dir():
        raise DatasetNotFoundError(
            f"{path}: no such folder; give a folder with edge_index.npy or edges*.parquet"
        )
    folder = _Folder(path)
    edge_index = folder.edge_index()
    x, y, edge_attr = folder.open("x"), folder.open("y"), folder.open("edge_attr")
    num_nodes = _num_nodes(folder, edge_index, x, y)
    labels = torch.tensor(-1).expand(num_nodes) if y is None else to_labels(y, folder.files["y"], "y")
    num_classes = folder.meta.num_classes
    if num_classes is None:
        num_classes = max(int(labels.max()) + 1, 0) if labels.numel() else 0
    train_idx, val_idx, test_idx = (folder.split(part, num_nodes) for part in _SPLITS)
    dataset = Dataset(
        name=folder.meta.name or path.resolve().name,
        num_nodes=num_nodes,
        num_classes=num_classes,
        edge_index=edge_index,
        x=None if x is None else to_features(x, folder.files["x"], "x"),
        y=labels,
        train_idx=train_idx,
        val_idx=val_idx,
        test_idx=test_idx,
        source=folder.meta.source or f"Arrays read from the folder {path}.",
        edge_attr=None
        if edge_attr is None
        else to_features(edge_attr, folder.files["edge_attr"], "edge_attr"),
    )
    return dataset, folder.files


def verify_folder(path: str | Path) -> int:
    """Compare every file of a folder with META.json, however large; returns the number of files compared.

    Raises:
        DatasetError: a file differs, or META.json has no checksums.
    """
    path = Path(path).expanduser()
    folder = _Folder(path)
    if not folder.meta.arrays:
        raise broken(path / META_FILE, "arrays", "no checksums to compare with", "write it with write_folder")
    for array, promise in folder.meta.arrays.items():
        file = path / str(promise["file"])
        open_npy(file, array)
        check_sha256(
            file, array, str(promise["sha256"]), META_FILE, "restore the file or make the folder again"
        )
    return len(folder.meta.arrays)


def _num_nodes(folder: _Folder, edge_index: Tensor, x: np.ndarray | None, y: np.ndarray | None) -> int:
    """Number of nodes: META.json's, else the rows of x, of y or of a mask, else the largest id + 1."""
    if folder.meta.num_nodes is not None:
        return folder.meta.num_nodes
    masks = (folder.open(f"{part}_mask") for part in _SPLITS)
    for values in (x, y, *masks):
        if values is not None and values.ndim:
            return len(values)
    return int(edge_index.max()) + 1 if edge_index.numel() else 0
