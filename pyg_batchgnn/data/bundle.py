"""Reads the small real graphs kept as NAME.npz with NAME.json (cora, amazon_photo, ...)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.data.check import check_dataset
from pyg_batchgnn.data.convert import to_features, to_index, to_labels
from pyg_batchgnn.data.dataset import SPLITS, Dataset, EdgeSet, NodeSet, class_numbers
from pyg_batchgnn.data.errors import DatasetNotFoundError, broken
from pyg_batchgnn.data.files.durable import check_sha256, read_json
from pyg_batchgnn.data.folder_write import arrays_of
from pyg_batchgnn.data.ogb.raw import open_member
from pyg_batchgnn.data.places import data_folders, say_where
from pyg_batchgnn.types import FEATURES, LABELS, Relation

_RESTORE = "copy the .npz and its .json again from where they came from"
_FEATURE_KEYS = ("x_indptr", "x_indices", "x_shape")


def bundled_names(root: str | Path | None = None) -> list[str]:
    found = (path for folder in data_folders(root) for path in folder.glob("*.json"))
    return sorted({path.stem for path in found if path.with_suffix(".npz").is_file()})


def find_bundle(name: str, root: str | Path | None = None) -> Path | None:
    for folder in data_folders(root):
        path = folder / f"{name}.npz"
        if path.is_file() or path.with_suffix(".json").is_file():
            return path
    return None


def read_bundle(
    name: str, root: str | Path | None = None, *, feature_dim: int | None = None, projection_seed: int = 0
) -> Dataset:
    """Reads a bundled graph: NAME.npz with its NAME.json.

    ``name``: such as "cora". ``root``: the folder of the files; None searches `data_folders`.
    ``feature_dim``: projects sparse features at random to this many columns, by
    ``projection_seed``; None makes them dense. Raises `DatasetNotFoundError` if a file is missing,
    `DatasetError` if it is damaged.
    """
    path = find_bundle(name, root)
    if path is None:
        where = say_where(data_folders(root))
        raise DatasetNotFoundError(f"{name}: no {name}.npz ({where}); put {name}.npz and {name}.json there")
    about = _read_about(path)
    arrays = _read_arrays(path, about)
    typed = about.get("heterogeneous", False)
    dataset = Dataset.homogeneous(
        name,
        _count(path, about, "num_nodes"),
        to_index(arrays["edge_index"], path, "edge_index"),
        nodes={
            FEATURES: _features(path, arrays, feature_dim, projection_seed),
            LABELS: to_labels(arrays["y"], path, "y"),
        },
        splits={
            split: to_index(arrays[f"{split}_idx"], path, f"{split}_idx").to(torch.int64) for split in SPLITS
        },
        num_classes=_count(path, about, "num_classes"),
        source=_sentence(path, about, feature_dim),
    )
    check_dataset(dataset, dict.fromkeys(arrays_of(dataset), path))
    if not typed:
        return dataset
    return by_type(dataset, _numbered(path, about, arrays, "node"), _numbered(path, about, arrays, "edge"))


def _read_about(path: Path) -> dict[str, Any]:
    json_path = path.with_suffix(".json")
    for file in (path, json_path):
        if not file.is_file():
            raise DatasetNotFoundError(f"{file}: the file does not exist; {_RESTORE}")
    about = read_json(json_path)
    for key in ("bytes", "sha256", "num_nodes", "num_classes", "arrays"):
        if key not in about:
            raise broken(json_path, key, "entry is missing", _RESTORE)
    size = path.stat().st_size
    if size != about["bytes"]:
        state = "truncated" if size < about["bytes"] else "too long"
        raise broken(path, "all arrays", f"file is {state}: {size} bytes, not {about['bytes']}", _RESTORE)
    check_sha256(path, "all arrays", about["sha256"], json_path.name, f"the file was altered: {_RESTORE}")
    return about


def _read_arrays(path: Path, about: dict[str, Any]) -> dict[str, np.ndarray]:
    """Returns the arrays by name. Dtype and shape are compared with the JSON before reading."""
    arrays, said = dict[str, np.ndarray](), about["arrays"]
    types = ("node_type", "edge_type") if about.get("heterogeneous", False) else ()
    needed = ("edge_index", "y", "train_idx", "val_idx", "test_idx")
    known = (*needed, "x", "x_data", *_FEATURE_KEYS, *types)
    if not isinstance(said, dict):
        raise broken(path.with_suffix(".json"), "arrays", f"is {said!r}, expected an object", _RESTORE)
    if others := [key for key in said if key not in known]:
        fact = f"{path}: the arrays {', '.join(map(repr, others))} are not read"
        warnings.warn(f"{fact}; write_folder keeps them in a folder of .npy files", stacklevel=2)
    for key in (*needed, *(key for key in known[len(needed) :] if key in said)):
        with open_member(path, key) as member:
            seen = [member.header.dtype.name, list(member.header.shape)]
            if seen != said.get(key):
                fact = f"is {seen[0]} {seen[1]}, the JSON says {said.get(key)}"
                raise broken(path, key, fact, _RESTORE)
            arrays[key] = member.read()
    return arrays


def _features(path: Path, arrays: dict[str, np.ndarray], feature_dim: int | None, seed: int) -> Tensor:
    if feature_dim is not None and feature_dim < 1:
        raise broken(path, "x", f"feature_dim is {feature_dim}", "ask for 1 or more columns")
    if "x" in arrays:
        if feature_dim is not None:
            raise broken(
                path, "x", "features are dense, feature_dim projects sparse ones", "drop feature_dim"
            )
        return to_features(arrays["x"], path, "x")
    for key in _FEATURE_KEYS:
        if key not in arrays:
            raise broken(
                path, key, "array is missing (features are x, or x_indptr, x_indices, x_shape)", _RESTORE
            )
    for key in _FEATURE_KEYS:
        if arrays[key].ndim != 1 or arrays[key].dtype.kind not in "iu":
            fact = f"is {arrays[key].dtype} {list(arrays[key].shape)}, expected integers in one dimension"
            raise broken(path, key, fact, _RESTORE)
    shape = [int(size) for size in arrays["x_shape"]]
    if len(shape) != 2 or min(shape) < 0 or shape[0] != len(arrays["x_indptr"]) - 1:
        fact = f"is {shape}, x_indptr has {len(arrays['x_indptr'])} entries"
        raise broken(path, "x_shape", fact, _RESTORE)
    rows = SparseRows(arrays["x_indptr"], arrays["x_indices"], arrays.get("x_data"), shape[1])
    if flaw := rows.flaw():
        raise broken(path, *flaw, _RESTORE)
    return densify(rows) if feature_dim is None else project(rows, feature_dim, seed)


def _numbered(path: Path, about: dict[str, Any], arrays: dict[str, np.ndarray], kind: str) -> TypeNumbers:
    names, array = about.get(f"{kind}_type_names"), f"{kind}_type"
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        fact = f"is {names!r}, expected a list of names"
        raise broken(path.with_suffix(".json"), f"{kind}_type_names", fact, _RESTORE)
    rows = arrays["y"].shape[0] if kind == "node" else arrays["edge_index"].shape[1]
    if array not in arrays or arrays[array].shape != (rows,) or arrays[array].dtype.kind not in "iu":
        raise broken(path, array, f"is missing, or is not {rows} integers", _RESTORE)
    numbers = torch.from_numpy(arrays[array].astype(np.int64))
    if rows and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(names):
        fact = f"holds types {int(numbers.min())} to {int(numbers.max())}, there are {len(names)}"
        raise broken(path, array, fact, _RESTORE)
    return tuple(names), numbers


def _count(path: Path, about: dict[str, Any], key: str) -> int:
    value = about[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise broken(path.with_suffix(".json"), key, f"is {value!r}, expected a whole number", _RESTORE)
    return value


def _sentence(path: Path, about: dict[str, Any], feature_dim: int | None) -> str:
    source = about.get("source")
    origin = source.get("repository", "") if isinstance(source, dict) else ""
    text = f"Real graph {path.stem}, read from {path}"
    if origin:
        text += f", made from {about.get('upstream') or origin}"
    if feature_dim is not None:
        text += f"; features projected at random to {feature_dim} columns"
    return text + "."


@dataclass(frozen=True)
class SparseRows:
    """A [num_rows, num_columns] matrix in compressed sparse rows (CSR)."""

    indptr: np.ndarray  # [num_rows + 1] integers, where each row starts
    indices: np.ndarray  # [nnz] integer columns
    data: np.ndarray | None  # [nnz] values, or None: all ones
    num_columns: int

    def flaw(self) -> tuple[str, str] | None:
        """Returns (array, what is wrong) for the first inconsistency, or None."""
        if len(self.indptr) == 0 or int(self.indptr[0]) != 0:
            return "x_indptr", "does not start with 0"
        if (np.diff(self.indptr.astype(np.int64)) < 0).any():
            return "x_indptr", "decreases"
        if int(self.indptr[-1]) != len(self.indices):
            return "x_indptr", f"ends with {self.indptr[-1]} but x_indices has {len(self.indices)} entries"
        if len(self.indices):
            low, high = int(self.indices.min()), int(self.indices.max())
            if low < 0 or high >= self.num_columns:
                worst = low if low < 0 else high
                return "x_indices", f"column {worst} is outside [0, {self.num_columns})"
        if self.data is not None and len(self.data) != len(self.indices):
            return "x_data", f"has {len(self.data)} entries but x_indices has {len(self.indices)}"
        return None


def densify(rows: SparseRows) -> Tensor:
    dense = np.zeros((len(rows.indptr) - 1, rows.num_columns), np.float32)
    row = np.repeat(np.arange(len(dense)), np.diff(rows.indptr))
    dense[row, rows.indices] = 1.0 if rows.data is None else rows.data
    return torch.from_numpy(dense)


def project(rows: SparseRows, dim: int, seed: int) -> Tensor:
    """Projects the rows at random to `dim` columns: [num_rows, dim] float32. The matrix is normal
    with variance 1 / dim, so distances are kept on average (Johnson and Lindenstrauss)."""
    generator = np.random.default_rng(seed)
    matrix = generator.standard_normal((rows.num_columns, dim), dtype=np.float32) / np.float32(np.sqrt(dim))
    weights = None if rows.data is None else torch.from_numpy(rows.data.astype(np.float32))
    return torch.nn.functional.embedding_bag(
        torch.from_numpy(rows.indices.astype(np.int64)),
        torch.from_numpy(matrix),
        torch.from_numpy(rows.indptr[:-1].astype(np.int64)),
        mode="sum",
        per_sample_weights=weights,
    )


#: The names of types, and [n] int64: the position in them of the type of each node or edge.
TypeNumbers = tuple[tuple[str, ...], Tensor]


def by_type(dataset: Dataset, nodes: TypeNumbers, edges: TypeNumbers) -> Dataset:
    """Returns a homogeneous data set with several node types and relations. Nodes and edges keep
    their order. Each edge type gets a relation for each pair of node types that it joins.
    ``nodes``, ``edges``: the type of each."""
    names, number = nodes
    local = torch.empty_like(number)
    members = [(number == at).nonzero()[:, 0] for at in range(len(names))]
    for own in members:
        local[own] = torch.arange(len(own))
    node_sets = tuple(
        NodeSet(
            name,
            len(own),
            {key: table[own] for key, table in dataset.nodes.tables.items()},
            {key: local[index[number[index] == at]] for key, index in dataset.splits.items()},
            dataset.num_classes if class_numbers(dataset.nodes.tables) is not None else 0,
        )
        for at, (name, own) in enumerate(zip(names, members, strict=True))
    )
    edge_sets = tuple(
        EdgeSet(
            relation,
            local[dataset.edge_index[:, own].long()].to(dataset.edge_index.dtype),
            {key: table[own] for key, table in dataset.edges.tables.items()},
        )
        for relation, own in _relations(dataset.edge_index.long(), nodes, edges)
    )
    return Dataset(dataset.name, node_sets, edge_sets, dataset.source)


def _relations(
    edge_index: Tensor, nodes: TypeNumbers, edges: TypeNumbers
) -> Iterator[tuple[Relation, Tensor]]:
    names, number = nodes
    types = len(names)
    source, target = number[edge_index]
    cell = (edges[1] * types + source) * types + target
    for found in cell.unique().tolist():
        kind, ends = divmod(found, types * types)
        relation = names[ends // types], edges[0][kind], names[ends % types]
        yield relation, (cell == found).nonzero()[:, 0]
