"""Folders of .npy arrays: round trips and damage."""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.data import (
    Dataset,
    DatasetError,
    Group,
    RowKind,
    class_numbers,
    read_folder,
    verify_folder,
    write_folder,
)
from pyg_batchgnn.data.folder_write import new_folder
from pyg_batchgnn.data.meta import attribute_array, attribute_of, edge_array, group_folder, group_of_folder
from tests.support.tiers import examples, fixed
from tests.support.tiny_datasets import (
    CLASSES,
    EDGES,
    NODES,
    cut_bytes,
    data_sets,
    equal,
    flip_byte,
    same,
    save_arrays,
    tiny_dataset,
)
from tests.support.typed_datasets import typed_datasets

EDGE_INDEX = np.random.default_rng(0).integers(0, NODES, (2, EDGES))


@examples(60)
@given(data_sets())
def test_round_trip(dataset: Dataset) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write_folder(dataset, Path(folder) / "set")
        read = read_folder(path)
        assert same(dataset, read)
        assert (read.name, read.source) == (dataset.name, dataset.source)


def test_arrays_made_by_hand(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((NODES, 4))  # float64, as NumPy makes it
    y = np.arange(NODES) % CLASSES
    save_arrays(
        tmp_path / "mine", edge_index=EDGE_INDEX, x=x, y=y, train_idx=np.arange(5), val_idx=np.array([7])
    )
    dataset = read_folder(tmp_path / "mine")
    assert (dataset.name, dataset.num_nodes, dataset.num_classes) == ("mine", NODES, CLASSES)
    assert dataset.nodes.tables["x"].dtype == torch.float32
    assert dataset.split("train").tolist() == [0, 1, 2, 3, 4] and dataset.split("test").numel() == 0
    assert str(tmp_path / "mine") in dataset.source


def test_edges_alone_are_enough(tmp_path: Path) -> None:
    save_arrays(tmp_path / "bare", src=EDGE_INDEX[0].astype(np.int32), dst=EDGE_INDEX[1].astype(np.int32))
    dataset = read_folder(tmp_path / "bare")
    assert np.array_equal(dataset.edge_index.numpy(), EDGE_INDEX) and dataset.edge_index.dtype == torch.int32
    assert dataset.num_nodes == int(EDGE_INDEX.max()) + 1
    assert dataset.nodes.tables == {} and dataset.splits == {} and dataset.num_classes == 0


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (np.full(NODES, 0.5), 0),
        (np.full((NODES, 3), 1.0), 0),
        (np.zeros(NODES, bool), 0),
        (np.array([1.0, np.nan] * 10), 2),
        (np.arange(NODES)[:, None] % 5, 5),
    ],
)
def test_labels_and_other_targets_made_by_hand(tmp_path: Path, y: np.ndarray, classes: int) -> None:
    dataset = read_folder(save_arrays(tmp_path / "m", edge_index=EDGE_INDEX, y=y))
    read = dataset.nodes.tables["y"]
    assert dataset.num_classes == classes
    if classes:
        assert read.dtype == torch.int64 and read.tolist() == np.nan_to_num(y.ravel(), nan=-1).tolist()
    else:
        assert np.array_equal(read.numpy(), y) and read.numpy().dtype == y.dtype


def test_files_that_nothing_reads_are_named(tmp_path: Path) -> None:
    folder = save_arrays(tmp_path / "m", edge_index=EDGE_INDEX, trian_mask=np.zeros(NODES, bool))
    (folder / "labels.parquet").write_bytes(b"")
    (folder / "README.md").write_text("what the graph is")
    for name in ("nodes", "node", "edges", "notes"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "node" / "x.npy").write_bytes(b"")  # and no data in notes
    (folder / "nodes" / "year.csv").write_text("1")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read_folder(folder)
    said = [str(one.message).removeprefix(f"{folder}/") for one in caught]
    assert len(said) == 4 and all("is not read" in one for one in said)
    assert said[0].startswith("labels.parquet") and "as .npy files into nodes/" in said[0]
    assert said[1].startswith("nodes/year.csv")
    assert said[2].startswith("trian_mask.npy: is not read. Is train_mask.npy meant?")
    assert said[3].startswith("node: the folder is not read. Is nodes/ meant?")


BY_HAND: list[tuple[str, str, dict[str, Any], str]] = [
    ("edge_index", "edge_index", {"edge_index": EDGE_INDEX.astype(float)}, "dtype is float64"),
    ("edge_index", "edge_index", {"edge_index": EDGE_INDEX + 1}, "node id 20"),
    ("edge_index", "edge_index", {"edge_index": EDGE_INDEX.astype(np.uint64) + 2**63}, "not fit int64"),
    ("dst", "dst", {"edge_index": None, "src": EDGE_INDEX[0], "dst": EDGE_INDEX[1][:-1]}, "shape is [59]"),
    ("dst", "dst", {"edge_index": None, "src": EDGE_INDEX[0]}, "does not exist"),
    ("x", "x", {"x": np.zeros((NODES, 2), complex)}, "dtype is complex128"),
    ("x", "x", {"x": np.zeros(()), "train_mask": np.zeros(NODES, bool)}, "shape is []"),
    ("x", "x", {"x": np.zeros((NODES, 2)), "nodes/x": np.zeros((NODES, 2))}, "nodes/x.npy is there too"),
    ("y", "y", {"y": np.full(NODES, "a")}, "dtype is <U1"),
    ("train_idx", "train", {"train_idx": np.array([NODES])}, "node id 20"),
    ("train_mask", "train_mask", {"train_mask": np.zeros(NODES - 1, bool)}, "is bool [19]"),
    ("test_mask", "test_mask", {"test_mask": np.zeros(NODES, bool), "test_idx": np.zeros(0, int)}, "too"),
    ("test_idx", "test_idx", {"splits/test": np.zeros(0, int), "test_idx": np.zeros(0, int)}, "too"),
]


@pytest.mark.parametrize(("file", "array", "changes", "fact"), BY_HAND)
def test_inconsistent_arrays_are_named(
    tmp_path: Path, file: str, array: str, changes: dict[str, Any], fact: str
) -> None:
    arrays = {"edge_index": EDGE_INDEX, "y": np.zeros(NODES, int), **changes}
    folder = save_arrays(tmp_path / "bad", **{k: v for k, v in arrays.items() if v is not None})
    with pytest.raises(DatasetError) as error:
        read_folder(folder)
    assert str(error.value).startswith(f"{folder / file}.npy: {array}: ") and fact in str(error.value)


#: What is done to an array's file, and what reading and verifying the folder say.
DAMAGE: list[tuple[Callable[[Path], object], str, str]] = [
    (lambda file: cut_bytes(file, 3), "file is truncated", "file is truncated"),
    (lambda file: flip_byte(file, -8), "sha256 is", "sha256 is"),
    (Path.unlink, "the file does not exist", "the file does not exist"),
    (lambda file: np.save(file, np.load(file).astype(np.float64)), "META.json says", "sha256 is"),
    (lambda file: np.save(file, np.load(file)[..., :-1]), "META.json says", "sha256 is"),
    (lambda file: np.save(file, np.load(file).astype(object)), "dtype is object", "dtype is object"),
]


@pytest.mark.parametrize("array", ["edge_index", "nodes/x", "nodes/y", "splits/train", "splits/test"])
@pytest.mark.parametrize(("damage", "read_says", "verify_says"), DAMAGE)
def test_damage_to_any_array_is_named(
    tmp_path: Path, array: str, damage: Callable[[Path], object], read_says: str, verify_says: str
) -> None:
    folder = write_folder(tiny_dataset(), tmp_path / "set")
    file = folder / f"{array}.npy"
    damage(file)
    for read, fact in ((read_folder, read_says), (verify_folder, verify_says)):
        with pytest.raises(DatasetError) as error:
            read(folder)
        assert str(error.value).startswith(f"{file}: {file.stem}: ") and fact in str(error.value)


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"format": "someone.else"}, "format: is 'someone.else'"),
        ({"version": 99}, "version: is 99"),
        ({"num_nodes": -1}, "num_nodes: is -1"),
        ({"num_nodes": "many"}, "num_nodes: is 'many'"),
        ({"num_classes": 1.5}, "num_classes: is 1.5"),
        ({"num_nodes": float("nan")}, "it holds NaN"),
        ({"num_nodes": float("inf")}, "it holds Infinity"),
        ({"name": 5}, "name: is 5"),
        ({"arrays": None}, "arrays: missing"),
        ({"arrays": {"y": {}}}, "y: its entry lacks or garbles one of"),
    ],
)
def test_bad_meta_is_named(tmp_path: Path, changes: dict[str, Any], fact: str) -> None:
    folder = write_folder(tiny_dataset(), tmp_path / "set")
    file = folder / "META.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(DatasetError) as error:
        read_folder(folder)
    assert str(error.value).startswith(str(folder / "META.json")) and fact in str(error.value)


def test_a_file_that_meta_does_not_know_is_named(tmp_path: Path) -> None:
    folder = write_folder(tiny_dataset(), tmp_path / "set")
    np.save(folder / "edges" / "edge_attr.npy", np.zeros(EDGES))
    with pytest.raises(DatasetError, match=r"edge_attr\.npy: edge_attr: META\.json does not know"):
        read_folder(folder)


def test_verify_counts_files_and_needs_checksums(tmp_path: Path) -> None:
    assert verify_folder(write_folder(tiny_dataset(), tmp_path / "set")) == 6
    with pytest.raises(DatasetError, match="no checksums"):
        verify_folder(save_arrays(tmp_path / "bare", edge_index=EDGE_INDEX))


def test_writing_never_overwrites_and_leaves_nothing_behind(tmp_path: Path) -> None:
    write_folder(tiny_dataset(), tmp_path / "set")
    with pytest.raises(DatasetError, match="exists already"):
        write_folder(tiny_dataset(), tmp_path / "set")
    with pytest.raises(RuntimeError, match="stop"), new_folder(tmp_path / "other") as folder:
        (folder / "half.npy").write_bytes(b"")
        raise RuntimeError("stop")
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


WRITES = ("author", "writes", "paper")


@given(st.lists(st.text("ab_.%/é", min_size=1, max_size=5), min_size=3, max_size=3), st.text(min_size=1))
def test_names_of_types_and_relations_are_told_apart(names: list[str], attribute: str) -> None:
    relation = Group(RowKind.EDGE, (names[0], names[1], names[2]))
    assert group_of_folder(RowKind.EDGE, group_folder(relation)) == relation
    for group in (relation, Group(RowKind.NODE, names[0])):
        array = attribute_array(group, attribute)
        assert attribute_of(array) == (group, attribute) and array.count("/") == 2
        assert not any(part.startswith(".") for part in array.split("/")[:2])
    assert edge_array("indptr", relation).count("/") == 1


def assert_same(found: Dataset, wanted: Dataset) -> None:
    assert found.schema == wanted.schema and found.name == wanted.name
    for one, other in zip(found.sets, wanted.sets, strict=True):
        assert one.num_rows == other.num_rows and one.tables.keys() == other.tables.keys()
        assert all(equal(one.tables[name], table) for name, table in other.tables.items())
    for nodes, theirs in zip(found.node_sets, wanted.node_sets, strict=True):
        assert nodes.num_classes == theirs.num_classes
        assert {name: ids.tolist() for name, ids in nodes.splits.items()} == {
            name: ids.tolist() for name, ids in theirs.splits.items()
        }
    for edges, others in zip(found.edge_sets, wanted.edge_sets, strict=True):
        assert equal(edges.edge_index, others.edge_index)


@fixed(30)
@given(typed_datasets())
def test_a_folder_gives_back_what_was_written(dataset: Dataset) -> None:
    named = replace(dataset, has_names=True)
    with tempfile.TemporaryDirectory() as folder:
        path = write_folder(named, Path(folder) / "graph")
        assert_same(read_folder(path), named)
        assert verify_folder(path) == len(list(path.rglob("*.npy")))


def by_hand(path: Path) -> Path:
    """Writes authors without attributes, papers with some, and one relation."""
    for folder in ("edge_index", "nodes/paper", "splits/paper", "edges/author__writes__paper"):
        (path / folder).mkdir(parents=True)
    np.save(path / "edge_index" / "author__writes__paper.npy", np.array([[0, 2, 2], [1, 0, 1]]))
    np.save(path / "nodes" / "paper" / "x.npy", np.ones((3, 2), np.float32))
    np.save(path / "nodes" / "paper" / "y.npy", np.array([0, 1, 1]))
    np.save(path / "edges" / "author__writes__paper" / "time.npy", np.arange(3))
    np.save(path / "splits" / "paper" / "train.npy", np.array([2, 0]))
    return path


def test_a_folder_made_by_hand(tmp_path: Path) -> None:
    dataset = read_folder(by_hand(tmp_path / "graph"))
    assert dataset.schema.node_types == ("author", "paper") and dataset.schema.relations == (WRITES,)
    assert [nodes.num_nodes for nodes in dataset.node_sets] == [3, 3]
    assert dataset.nodes_of("paper").num_classes == 2
    assert dataset.split("train", "paper").tolist() == [2, 0]
    assert dataset.edges_of(WRITES).tables["time"].tolist() == [0, 1, 2]
    about = {"node_types": ["paper", "author"], "relations": [WRITES], "num_nodes": {"author": 9}}
    (tmp_path / "graph" / "META.json").write_text(json.dumps(about))
    dataset = read_folder(tmp_path / "graph")
    assert dataset.schema.node_types == ("paper", "author")
    assert dataset.nodes_of("author").num_nodes == 9


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("edge_index/authors.npy", r"authors\.npy: edge_index: authors is not named by a relation"),
        ("edges/author__likes__paper/x.npy", "belongs to no node type or relation of the graph"),
        ("splits/paper/val.npy", "node id 7 at position"),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, file: str, says: str) -> None:
    path = by_hand(tmp_path / "graph")
    (path / file).parent.mkdir(exist_ok=True)
    np.save(path / file, np.array([7, 7]))
    with pytest.raises(DatasetError, match=says):
        read_folder(path)


def test_a_meta_that_cannot_be(tmp_path: Path) -> None:
    path = by_hand(tmp_path / "graph")
    for about, says in (
        ({"node_types": ["paper"], "relations": [WRITES]}, "cannot be read"),
        ({"num_nodes": {"author": -1}}, "is -1, expected a whole number"),
        ({"node_types": ["author", "paper"], "relations": [["author", "likes", "paper"]]}, "does not exist"),
    ):
        (path / "META.json").write_text(json.dumps(about))
        with pytest.raises(DatasetError, match=says):
            read_folder(path)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_unsigned_class_numbers(dtype: str, tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    np.save(tmp_path / "edge_index.npy", np.array([[0, 1], [1, 2]]))
    np.save(tmp_path / "nodes" / "y.npy", np.array([2, 0, 1], dtype))
    found = read_folder(tmp_path)
    assert found.num_classes == 3
    labels = class_numbers(found.nodes.tables)
    assert labels is not None and labels.tolist() == [2, 0, 1]
    for batch in MacrobatchNeighborLoader(found.to_pyg(), [2], torch.tensor([2]), export="native"):
        assert batch.y.tolist() == [1, 0]
