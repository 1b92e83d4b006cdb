"""The bundled .npz graphs: made-up ones, damaged ones, and cora itself."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pyg_batchgnn.data import SPLITS, DatasetError, load_dataset, read_bundle
from pyg_batchgnn.data.load import bundled_names
from tests.support.tiers import all_only
from tests.support.tiny_datasets import (
    CLASSES,
    EDGES,
    FEATURES,
    NODES,
    bundle_features,
    cut_bytes,
    flip_byte,
    write_bundle,
)


def nonzeros() -> int:
    rng = np.random.default_rng(0)
    dense = rng.random((NODES, FEATURES)) < 0.4
    dense[3] = False
    return int(dense.sum())


def test_reads_ones_where_data_is_absent(tmp_path: Path) -> None:
    path = write_bundle(tmp_path)
    dataset = read_bundle("toy", tmp_path)
    assert np.array_equal(dataset.nodes.tables["x"].numpy(), bundle_features(path))
    assert dataset.edge_index.dtype == torch.int32 and dataset.edge_index.shape == (2, EDGES)
    assert dataset.nodes.tables["y"].dtype == torch.int64 and dataset.num_classes == CLASSES
    assert dataset.split("train").tolist() == list(range(8))
    assert str(path) in dataset.source


def test_reads_weights_and_dense_features(tmp_path: Path) -> None:
    weights = np.linspace(1, 2, nonzeros()).astype(np.float16)
    path = write_bundle(tmp_path, "weighted", x_data=weights)
    x = read_bundle("weighted", tmp_path).nodes.tables["x"]
    assert x is not None and np.array_equal(x.numpy(), bundle_features(path))
    dense = np.random.default_rng(0).random((NODES, 4)).astype(np.float16)
    no_sparse = dict.fromkeys(("x_indptr", "x_indices", "x_shape"))
    write_bundle(tmp_path, "dense", x=dense, **no_sparse)
    x = read_bundle("dense", tmp_path).nodes.tables["x"]
    assert x is not None and x.dtype == torch.float16 and np.array_equal(x.numpy(), dense)


def test_projection_is_the_dense_product_and_depends_on_its_seed(tmp_path: Path) -> None:
    weights = np.linspace(1, 2, nonzeros()).astype(np.float16)
    path = write_bundle(tmp_path, x_data=weights)
    x = read_bundle("toy", tmp_path, feature_dim=8, projection_seed=5).nodes.tables["x"]
    matrix = np.random.default_rng(5).standard_normal((FEATURES, 8), dtype=np.float32) / np.sqrt(8)
    assert x is not None and np.allclose(x.numpy(), bundle_features(path) @ matrix, atol=1e-5)
    assert x[3].abs().sum() == 0  # the node without a word
    again, other = (
        read_bundle("toy", tmp_path, feature_dim=8, projection_seed=s).nodes.tables["x"] for s in (5, 6)
    )
    assert torch.equal(x, again) and not torch.equal(x, other)  # type: ignore[arg-type]


def about(change: Callable[[str], str]) -> Callable[[Path], object]:
    def rewrite(path: Path) -> object:
        file = path.with_suffix(".json")
        return file.write_text(change(file.read_text()))

    return rewrite


def foreign(path: Path) -> None:
    """Puts something else there, with the right size and checksum."""
    path.write_bytes(b"not a zip archive at all")
    about = json.loads(path.with_suffix(".json").read_text())
    about |= {"bytes": 24, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    path.with_suffix(".json").write_text(json.dumps(about))


@pytest.mark.parametrize(
    ("damage", "fact"),
    [
        (lambda path: cut_bytes(path, 100), "toy.npz: all arrays: file is truncated"),
        (lambda path: path.write_bytes(path.read_bytes() + b"x"), "toy.npz: all arrays: file is too long"),
        (lambda path: flip_byte(path, path.stat().st_size // 2), "toy.npz: all arrays: sha256 is "),
        (about(lambda text: text[:50]), "toy.json: not valid JSON"),
        (about(lambda text: text.replace('nodes": 20', 'nodes": NaN')), "not valid JSON (it holds NaN)"),
        (about(lambda _: "[]"), "toy.json: holds a list"),
        (lambda path: path.with_suffix(".json").unlink(), "toy.json: the file does not exist"),
        (Path.unlink, "toy.npz: the file does not exist"),
        (foreign, "toy.npz: edge_index: truncated or damaged archive"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, damage: Callable[[Path], object], fact: str) -> None:
    damage(write_bundle(tmp_path))
    with pytest.raises(DatasetError) as error:
        read_bundle("toy", tmp_path)
    assert fact in str(error.value) and str(tmp_path) in str(error.value)


TYPES = {"heterogeneous": True, "node_type_names": ["noun", "verb"], "edge_type_names": ["to", "also"]}


def typed(**changes: Any) -> dict[str, Any]:
    types = {"node_type": np.zeros(NODES, np.uint8), "edge_type": np.zeros(EDGES, np.uint8)}
    return {"about": TYPES, **types, **changes}


BAD_ARRAYS: list[tuple[str, dict[str, Any], str]] = [
    ("edge_index", {"edge_index": np.full((2, 5), NODES, np.int32)}, "node id 20"),
    ("edge_index", {"edge_index": np.array([[{}]], dtype=object)}, "could only be unpickled"),
    ("y", {"y": np.full(NODES, CLASSES, np.int16)}, "label 3"),
    ("x_indptr", {"x_indptr": np.zeros(NODES + 1)}, "is float64 [21], expected integers"),
    ("x_indptr", {"x_indptr": np.arange(NODES + 1, dtype=np.int32)}, "ends with 20"),
    ("x_indptr", {"x_indptr": np.ones(NODES + 1, np.int32)}, "does not start with 0"),
    ("x_indptr", {"x_indptr": np.array([0, 5] + [4] * (NODES - 1), np.int32)}, "decreases"),
    ("x_indices", {"x_indices": np.full(nonzeros(), FEATURES, np.uint16)}, "column 5 is outside [0, 5)"),
    ("x_data", {"x_data": np.ones(3, np.float16)}, "has 3 entries"),
    ("x_shape", {"x_shape": np.array([NODES + 1, FEATURES])}, "is [21, 5]"),
    ("x_shape", {"x_shape": None}, "array is missing"),
    ("edge_index", {"about": {"arrays": {}}}, "is int32 [2, 60], the JSON says None"),
    ("node_type", typed(node_type=np.full(NODES, 2, np.uint8)), "holds types 2 to 2, there are 2"),
    ("edge_type", typed(edge_type=None), "is missing"),
    ("edge_type", typed(edge_type=np.zeros(3, np.uint8)), "is not 60 integers"),
]


@pytest.mark.parametrize(("array", "changes", "fact"), BAD_ARRAYS)
def test_bad_arrays_are_named(tmp_path: Path, array: str, changes: dict[str, Any], fact: str) -> None:
    path = write_bundle(tmp_path, **changes)
    with pytest.raises(DatasetError) as error:
        read_bundle("toy", tmp_path)
    assert str(error.value).startswith(f"{path}: {array}: ") and fact in str(error.value)


def test_a_graph_of_several_types(tmp_path: Path) -> None:
    node_type = (np.arange(NODES) % 3 == 1).astype(np.uint8)
    edge_type = (np.arange(EDGES) % 2).astype(np.uint8)
    path = write_bundle(tmp_path, **typed(node_type=node_type, edge_type=edge_type))
    assert bundled_names(tmp_path) == ["toy"]
    dataset = load_dataset("toy", tmp_path)
    plain = read_bundle("toy", tmp_path)
    assert dataset.schema == plain.schema and dataset.schema.node_types == ("noun", "verb")
    with np.load(path) as archive:
        edge_index, y, train = archive["edge_index"], archive["y"], archive["train_idx"]
    found, features = [], bundle_features(path)
    for number, nodes in enumerate(dataset.node_sets):
        own = np.flatnonzero(node_type == number)
        assert np.array_equal(nodes.tables["x"].numpy(), features[own])
        assert np.array_equal(nodes.tables["y"].numpy(), y[own]) and nodes.num_classes == CLASSES
        assert set(own[nodes.splits["train"]]) == set(train) & set(own)
    originals = {name: np.flatnonzero(node_type == at) for at, name in enumerate(dataset.schema.node_types)}
    for edges in dataset.edge_sets:
        source, name, target = edges.relation
        pairs = edges.edge_index.numpy()
        ends = zip(originals[source][pairs[0]], originals[target][pairs[1]], strict=True)
        found += [(int(one), name, int(other)) for one, other in ends]
    wanted = [
        (int(one), TYPES["edge_type_names"][kind], int(other))
        for (one, other), kind in zip(edge_index.T, edge_type, strict=True)
    ]
    assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize("dim", [0, -3])
def test_feature_dim_must_be_positive(tmp_path: Path, dim: int) -> None:
    write_bundle(tmp_path)
    with pytest.raises(DatasetError, match=f"x: feature_dim is {dim}"):
        read_bundle("toy", tmp_path, feature_dim=dim)


def test_cora(real_graphs: Path) -> None:
    dataset = read_bundle("cora", real_graphs)
    assert (dataset.num_nodes, dataset.num_edges, dataset.num_features) == (2708, 10556, 1433)
    assert dataset.num_classes == 7
    assert [len(dataset.split(name)) for name in SPLITS] == [140, 500, 1000]
    assert int(dataset.nodes.tables["x"].sum()) == 49216
    assert dataset.to_pyg().is_undirected()


@all_only
def test_real_graph_of_several_types(real_graphs: Path) -> None:
    dataset = load_dataset("oewn_hetero", real_graphs, feature_dim=8)
    about = json.loads((real_graphs / "oewn_hetero.json").read_text())
    assert list(dataset.schema.node_types) == about["node_type_names"]
    assert [nodes.num_nodes for nodes in dataset.node_sets] == about["node_counts"]
    counts = dict.fromkeys(about["edge_type_names"], 0)
    for edges in dataset.edge_sets:
        counts[edges.relation[1]] += edges.num_edges
    assert counts == about["edges_per_type"]
    assert sum(len(dataset.split("train", name)) for name in dataset.schema.node_types) == 64515


def test_arrays_that_are_not_read_are_named(tmp_path: Path) -> None:
    write_bundle(tmp_path, "more", edge_weight=np.ones(EDGES))
    with pytest.warns(UserWarning, match=r"more.npz: the arrays 'edge_weight' are not read"):
        read_bundle("more", tmp_path)
