"""Small made-up data sets in every layout that is read."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.data import EDGES as EDGE_GROUP
from pyg_batchgnn.data import NODES as NODE_GROUP
from pyg_batchgnn.data import Dataset, Group, attribute_of, split_of
from pyg_batchgnn.data.folder_write import arrays_of

NODES, EDGES, FEATURES, CLASSES = 20, 60, 5, 3


def tiny_dataset(seed: int = 0) -> Dataset:
    """20 nodes, 60 edges, 5 features, 3 classes; node 19 has no label."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(NODES) % CLASSES
    y[-1] = -1
    return Dataset.homogeneous(
        "tiny",
        NODES,
        torch.randint(NODES, (2, EDGES), generator=generator),
        nodes={"x": torch.randn(NODES, FEATURES, generator=generator), "y": y},
        splits={"train": torch.arange(0, 8), "val": torch.arange(8, 12), "test": torch.arange(12, 19)},
        num_classes=CLASSES,
        source="Made up for tests.",
    )


def changed(dataset: Dataset, changes: Mapping[str, Any]) -> Dataset:
    """Returns a data set with some arrays (named as in `arrays_of`) replaced; None omits one.

    Fields are changed by their names.
    """
    fields = {name: value for name, value in changes.items() if name in ("name", "num_nodes", "num_classes")}
    arrays = {**arrays_of(dataset), **changes}
    tables: dict[Group, dict[str, Tensor]] = {NODE_GROUP: {}, EDGE_GROUP: {}}
    splits = {}
    for array, value in arrays.items():
        if value is None or array in fields:
            continue
        if attribute := attribute_of(array):
            tables[attribute[0]][attribute[1]] = value
        elif split := split_of(array):
            splits[split[1]] = value
    name = fields.pop("name", dataset.name)
    nodes = replace(dataset.nodes, tables=tables[NODE_GROUP], splits=splits, **fields)
    edges = replace(dataset.edges, edge_index=arrays["edge_index"], tables=tables[EDGE_GROUP])
    return replace(dataset, name=name, node_sets=(nodes,), edge_sets=(edges,))


def same(a: Dataset, b: Dataset) -> bool:
    """Returns whether two data sets hold equal arrays of equal types."""
    left, right = arrays_of(a), arrays_of(b)
    return (
        left.keys() == right.keys()
        and all(equal(left[array], right[array]) for array in left)
        and (a.num_nodes, a.num_classes) == (b.num_nodes, b.num_classes)
    )


def equal(a: Tensor, b: Tensor) -> bool:
    """Returns whether two tensors have the same dtype, shape and bits."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.numel() == 0 or torch.equal(_bytes(a), _bytes(b))


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)


def save_arrays(folder: Path, **arrays: np.ndarray) -> Path:
    """Writes NAME.npy for every array, without META.json."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in arrays.items():
        file = folder / f"{name}.npy"
        file.parent.mkdir(exist_ok=True)
        np.save(file, values)
    return folder


def write_bundle(
    folder: Path, name: str = "toy", about: dict[str, Any] | None = None, **changes: Any
) -> Path:
    """Writes a bundled graph NAME.npz with its NAME.json; a change of None omits the array."""
    rng = np.random.default_rng(0)
    dense = rng.random((NODES, FEATURES)) < 0.4
    dense[3] = False  # a node without a word
    arrays: dict[str, Any] = {
        "edge_index": rng.integers(0, NODES, (2, EDGES)).astype(np.int32),
        "x_indptr": np.concatenate([[0], np.cumsum(dense.sum(1))]).astype(np.int32),
        "x_indices": np.nonzero(dense)[1].astype(np.uint16),
        "x_shape": np.array([NODES, FEATURES]),
        "y": (np.arange(NODES) % CLASSES).astype(np.int16),
        "train_idx": np.arange(0, 8, dtype=np.int32),
        "val_idx": np.arange(8, 12, dtype=np.int32),
        "test_idx": np.arange(12, 20, dtype=np.int32),
    }
    arrays.update(changes)
    arrays = {key: value for key, value in arrays.items() if value is not None}
    path = folder / f"{name}.npz"
    np.savez_compressed(path, **arrays)
    content = {
        "name": name,
        "bytes": path.stat().st_size,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "num_nodes": NODES,
        "num_classes": CLASSES,
        "source": {"repository": "made up"},
        "arrays": {key: [value.dtype.name, list(value.shape)] for key, value in arrays.items()},
        **(about or {}),
    }
    path.with_suffix(".json").write_text(json.dumps(content))
    return path


def bundle_features(path: Path) -> np.ndarray:
    """The bundle's features as a dense matrix, made the slow way."""
    with np.load(path) as archive:
        dense = np.zeros(archive["x_shape"], np.float32)
        for row in range(len(dense)):
            for at in range(archive["x_indptr"][row], archive["x_indptr"][row + 1]):
                dense[row, archive["x_indices"][at]] = archive["x_data"][at] if "x_data" in archive else 1.0
    return dense


def write_csv(path: Path, rows: Any) -> None:
    """Writes a .csv.gz of the given rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(",".join(map(str, np.atleast_1d(row).tolist())) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()))


def write_ogb_splits(folder: Path, split: str, dataset: Dataset) -> None:
    """Writes split/SPLIT/{train,valid,test}.csv.gz."""
    for part, name in (("train", "train"), ("valid", "val"), ("test", "test")):
        write_csv(folder / "split" / split / f"{part}.csv.gz", dataset.split(name).tolist())


def write_ogb_csv(root: Path, name: str, split: str) -> tuple[Path, Dataset]:
    """Writes OGB's CSV layout of the tiny data set; returns its folder and the data set."""
    folder, dataset = root / name.replace("-", "_"), tiny_dataset()
    raw = folder / "raw"
    write_csv(raw / "edge.csv.gz", dataset.edge_index.T.tolist())
    write_csv(raw / "num-node-list.csv.gz", [NODES])
    write_csv(raw / "num-edge-list.csv.gz", [EDGES])
    write_csv(raw / "node-feat.csv.gz", dataset.nodes.tables["x"].tolist())
    write_csv(
        raw / "node-label.csv.gz",
        [label if label >= 0 else "nan" for label in dataset.nodes.tables["y"].tolist()],
    )
    write_ogb_splits(folder, split, dataset)
    return folder, dataset


def write_ogb_binary(root: Path, **changes: np.ndarray) -> tuple[Path, Dataset]:
    """Writes papers100M's layout of the tiny data set."""
    folder, dataset = root / "ogbn_papers100M", tiny_dataset()
    (folder / "raw").mkdir(parents=True)
    arrays = {
        "edge_index": dataset.edge_index.numpy(),
        "num_nodes_list": np.array([NODES]),
        "num_edges_list": np.array([EDGES]),
        "node_feat": dataset.nodes.tables["x"].numpy(),
        "node_year": np.full((NODES, 1), 2020),
        **changes,
    }
    np.savez_compressed(folder / "raw" / "data.npz", **arrays)
    y = dataset.nodes.tables["y"].numpy()
    label = np.where(y < 0, np.nan, y).astype(np.float32)[:, None]
    np.savez_compressed(folder / "raw" / "node-label.npz", node_label=label)
    write_ogb_splits(folder, "time", dataset)
    return folder, dataset


def write_ogb_typed(root: Path) -> Path:
    """Writes ogbn-mag's layout of a made-up graph; returns its folder."""
    folder = root / "ogbn_mag"
    raw, split = folder / "raw", folder / "split" / "time"
    types = ("paper", "author", "field_of_study", "institution")
    marks = ["True", "False", "False", "False"]
    write_csv(raw / "num-node-dict.csv.gz", [types, [4, 3, 2, 1]])
    for name in ("nodetype-has-feat", "nodetype-has-label"):
        write_csv(raw / f"{name}.csv.gz", [types, marks])
    write_csv(split / "nodetype-has-split.csv.gz", [types, marks])
    relations = {
        ("paper", "cites", "paper"): [[0, 1], [3, 2], [3, 0]],
        ("author", "writes", "paper"): [[2, 3], [0, 0]],
        ("author", "affiliated_with", "institution"): [[1, 0]],
        ("paper", "has_topic", "field_of_study"): [[0, 1], [2, 0]],
    }
    write_csv(raw / "triplet-type-list.csv.gz", list(relations))
    for at, (names, edges) in enumerate(relations.items()):
        inside = raw / "relations" / "___".join(names)
        write_csv(inside / "edge.csv.gz", edges)
        write_csv(inside / "num-edge-list.csv.gz", [len(edges)])
        write_csv(inside / "edge_reltype.csv.gz", [at] * len(edges))
    write_csv(raw / "node-feat" / "paper" / "node-feat.csv.gz", [[at, 0.5] for at in range(4)])
    write_csv(raw / "node-feat" / "paper" / "node_year.csv.gz", [2010, 2011, 2012, 2013])
    write_csv(raw / "node-label" / "paper" / "node-label.csv.gz", [3, 348, 0, 7])
    for part, ids in (("train", [0, 2]), ("valid", [1]), ("test", [3])):
        write_csv(split / "paper" / f"{part}.csv.gz", ids)
    return folder
