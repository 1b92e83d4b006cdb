"""Small made-up data sets in every layout that is read."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from pyg_batchgnn.data import EDGES as EDGE_GROUP
from pyg_batchgnn.data import NODES as NODE_GROUP
from pyg_batchgnn.data import Dataset, EdgeSet, Group, LinkSplit, NodeSet, attribute_of, split_of
from pyg_batchgnn.data.folder_write import arrays_of

NODES, EDGES, FEATURES, CLASSES = 20, 60, 5, 3


def tiny_dataset(seed: int = 0) -> Dataset:
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
    """Returns a data set with some arrays (named as in `arrays_of`) replaced; None omits one."""
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
    edges = replace(dataset.edges, topology=arrays["edge_index"], tables=tables[EDGE_GROUP])
    return replace(dataset, name=name, node_sets=(nodes,), edge_sets=(edges,))


def same(a: Dataset, b: Dataset) -> bool:
    left, right = arrays_of(a), arrays_of(b)
    return (
        left.keys() == right.keys()
        and all(equal(left[array], right[array]) for array in left)
        and (a.num_nodes, a.num_classes) == (b.num_nodes, b.num_classes)
    )


def equal(a: Tensor, b: Tensor) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.numel() == 0 or torch.equal(_bytes(a), _bytes(b))


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)


def save_arrays(folder: Path, **arrays: np.ndarray) -> Path:
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
    with np.load(path) as archive:
        dense = np.zeros(archive["x_shape"], np.float32)
        for row in range(len(dense)):
            for at in range(archive["x_indptr"][row], archive["x_indptr"][row + 1]):
                dense[row, archive["x_indices"][at]] = archive["x_data"][at] if "x_data" in archive else 1.0
    return dense


def flip_byte(path: Path, at: int = -1) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def cut_bytes(path: Path, count: int) -> None:
    os.truncate(path, path.stat().st_size - count)


def write_csv(path: Path, rows: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(",".join(map(str, np.atleast_1d(row).tolist())) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()))


def write_ogb_splits(folder: Path, split: str, dataset: Dataset) -> None:
    for part, name in (("train", "train"), ("valid", "val"), ("test", "test")):
        write_csv(folder / "split" / split / f"{part}.csv.gz", dataset.split(name).tolist())


def write_ogb_graph(raw: Path, dataset: Dataset) -> None:
    write_csv(raw / "edge.csv.gz", dataset.edge_index.T.tolist())
    write_csv(raw / "num-node-list.csv.gz", [NODES])
    write_csv(raw / "num-edge-list.csv.gz", [EDGES])
    write_csv(raw / "node-feat.csv.gz", dataset.nodes.tables["x"].tolist())


def write_ogb_csv(root: Path, name: str, split: str) -> tuple[Path, Dataset]:
    """Writes OGB's CSV layout of the tiny data set; returns its folder and the data set."""
    folder, dataset = root / name.replace("-", "_"), tiny_dataset()
    write_ogb_graph(folder / "raw", dataset)
    labels = [label if label >= 0 else "nan" for label in dataset.nodes.tables["y"].tolist()]
    write_csv(folder / "raw" / "node-label.csv.gz", labels)
    write_ogb_splits(folder, split, dataset)
    return folder, dataset


def write_ogb_binary(root: Path, **changes: np.ndarray) -> tuple[Path, Dataset]:
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


def pairs(count: int, sources: int, targets: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randint(size, (count,), generator=generator) for size in (sources, targets)])


def link_splits(sources: int, targets: int, seed: int = 0) -> dict[str, LinkSplit]:
    """Returns training links with attributes, validation links with shared negatives, and test
    links with negative targets."""
    some = [pairs(count, sources, targets, seed + count) for count in (9, 4, 5)]
    return {
        "train": LinkSplit(some[0], {"year": torch.arange(9) + 2000, "weight": torch.ones(9, 2)}),
        "val": LinkSplit(some[1].to(torch.int32), {}, negatives=pairs(7, sources, targets, seed)),
        "test": LinkSplit(some[2], {}, negative_targets=pairs(30, targets, targets, seed)[0].view(5, 6)),
    }


def typed_links() -> Dataset:
    buys = EdgeSet(("user", "buys_", "item"), pairs(12, 6, 4, 1), {}, link_splits(6, 4))
    back = EdgeSet(("item", "rev_buys", "user"), buys.edge_index.flip(0).clone())
    return Dataset("shop", (NodeSet("user", 6), NodeSet("item", 4)), (buys, back), "Made up for tests.")


def write_ogb_links(root: Path, name: str, *, is_zip: bool = True) -> tuple[Path, dict[str, LinkSplit]]:
    """Writes the raw files of a data set of links; returns its folder and its splits."""
    folder, dataset = root / name.replace("-", "_"), tiny_dataset()
    raw = folder / "raw"
    write_ogb_graph(raw, dataset)
    splits = {
        "train": LinkSplit(pairs(8, NODES, NODES, 1)),
        "val": LinkSplit(pairs(3, NODES, NODES, 2)),
        "test": LinkSplit(pairs(4, NODES, NODES, 3)),
    }
    if name == "ogbl-collab":
        write_csv(raw / "edge_weight.csv.gz", range(EDGES))
        write_csv(raw / "edge_year.csv.gz", [2000 + at % 3 for at in range(EDGES)])
        for at, (split, links) in enumerate(splits.items()):
            tables = {"weight": torch.arange(len(links)), "year": torch.full((len(links),), 2017 + at)}
            negatives = None if split == "train" else pairs(10, NODES, NODES, 5 + at)
            splits[split] = LinkSplit(links.index, tables, negatives)
    else:
        write_csv(raw / "node_year.csv.gz", [1990 + at for at in range(NODES)])
        for at, (split, links) in enumerate(splits.items()):
            others = None if split == "train" else pairs(len(links) * 6, NODES, NODES, at)[0].view(-1, 6)
            splits[split] = LinkSplit(links.index, {}, None, others)
    (folder / "split" / "time").mkdir(parents=True)
    for file, split in (("train", "train"), ("valid", "val"), ("test", "test")):
        content = _as_ogb_has_it(splits[split])
        path = folder / "split" / "time" / f"{file}.pt"
        torch.save(content, path, _use_new_zipfile_serialization=is_zip)
    return folder, splits


def _as_ogb_has_it(links: LinkSplit) -> dict[str, np.ndarray]:
    if links.tables:
        content = {"edge": np.ascontiguousarray(links.index.numpy().T)}
        content |= {name: table.numpy() for name, table in links.tables.items()}
        return content | ({} if links.negatives is None else {"edge_neg": links.negatives.numpy().T})
    content = {"source_node": links.index[0].numpy(), "target_node": links.index[1].numpy()}
    if links.negative_targets is not None:
        content["target_node_neg"] = links.negative_targets.numpy()
    return content


DTYPES = (
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
)
NAMES = st.text("abz_/%.é 1", min_size=1, max_size=6)


@st.composite
def tensors(draw: st.DrawFn, rows: int) -> Tensor:
    dtype = draw(st.sampled_from(DTYPES))
    shape = (rows, *draw(st.lists(st.integers(0, 3), max_size=2)))
    values = torch.randint(-3, 100, shape) + torch.rand(shape)
    return values.to(dtype)


@st.composite
def tables(draw: st.DrawFn, rows: int, names: st.SearchStrategy[str] = NAMES) -> dict[str, Tensor]:
    return {name: draw(tensors(rows)) for name in draw(st.lists(names, max_size=3, unique=True))}


@st.composite
def edges(draw: st.DrawFn, nodes: int) -> Tensor:
    pairs = draw(st.lists(st.tuples(*[st.integers(0, nodes - 1)] * 2), max_size=20))
    dtype = draw(st.sampled_from([torch.int32, torch.int64]))
    return torch.tensor(pairs, dtype=dtype).reshape(-1, 2).T.contiguous()


@st.composite
def data_sets(draw: st.DrawFn) -> Dataset:
    """Returns data sets with class numbers, other targets or none, and splits of any names."""
    nodes = draw(st.integers(1, 12))
    edge_index = draw(edges(nodes))
    of_nodes = draw(tables(nodes))
    kind = draw(st.sampled_from(["classes", "column", "any", "none"]))
    if kind in ("classes", "column"):
        y = torch.randint(0, 4, (nodes,))
        of_nodes["y"] = y if kind == "classes" else y[:, None]
    elif kind == "any":
        of_nodes["y"] = torch.rand(nodes, 2)
    if draw(st.booleans()):
        of_nodes["x"] = torch.randn(nodes, draw(st.integers(0, 3))).to(draw(st.sampled_from(DTYPES)))
    part = torch.tensor(draw(st.lists(st.integers(0, 3), min_size=nodes, max_size=nodes)))
    names = draw(st.lists(st.sampled_from(["train", "val", "test"]), unique=True))
    splits = {name: (part == code).nonzero()[:, 0] for code, name in enumerate(names)}
    if draw(st.booleans()):
        splits["calib"] = torch.randint(0, nodes, (3,))
    return Dataset.homogeneous(
        draw(st.text(min_size=1, max_size=8)),
        nodes,
        edge_index,
        nodes=of_nodes,
        edges=draw(tables(edge_index.shape[1])),
        splits=splits,
        source=draw(st.text(min_size=1, max_size=20)),
    )
