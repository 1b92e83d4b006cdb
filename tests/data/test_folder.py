"""Folders of .npy arrays: round trips and damage."""

import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given

from pyg_batchgnn.data import (
    Dataset,
    DatasetError,
    DatasetNotFoundError,
    read_folder,
    verify_folder,
    write_folder,
)
from pyg_batchgnn.data.folder_write import arrays_of, new_folder
from tests.support.dataset_strategies import data_sets
from tests.support.tiers import examples
from tests.support.tiny_datasets import CLASSES, EDGES, NODES, same, save_arrays, tiny_dataset

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


def test_masks_and_a_short_meta(tmp_path: Path) -> None:
    mask = np.zeros(NODES, bool)
    mask[[2, 5]] = True
    folder = save_arrays(tmp_path / "m", edge_index=EDGE_INDEX, y=np.zeros(NODES), train_mask=mask)
    (folder / "META.json").write_text(json.dumps({"name": "named", "num_classes": 9, "source": "Hand made."}))
    dataset = read_folder(folder)
    assert (dataset.name, dataset.num_classes, dataset.source) == ("named", 9, "Hand made.")
    assert dataset.split("train").tolist() == [2, 5]


def test_attributes_and_splits_made_by_hand(tmp_path: Path) -> None:
    arrays = {
        "nodes/time": np.arange(NODES),
        "nodes/second": np.random.default_rng(0).random((NODES, 2, 3)),
        "nodes/y": np.ones((NODES, 4), np.uint8),
        "edges/weight": np.random.default_rng(1).random(EDGES),
        "edges/year": np.arange(EDGES, dtype=np.int16),
    }
    splits = {"splits/train": np.array([4, 2], np.int32), "splits/calib": np.array([4, 4])}
    dataset = read_folder(save_arrays(tmp_path / "m", edge_index=EDGE_INDEX, **arrays, **splits))
    found = arrays_of(dataset)
    for array, values in arrays.items():
        assert np.array_equal(found[array].numpy(), values) and found[array].numpy().dtype == values.dtype
    assert {name: ids.tolist() for name, ids in dataset.splits.items()} == {"train": [4, 2], "calib": [4, 4]}
    assert dataset.num_classes == 0


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


def test_arrays_without_a_meaning_are_named(tmp_path: Path) -> None:
    folder = save_arrays(tmp_path / "m", edge_index=EDGE_INDEX, year=np.arange(NODES))
    with pytest.warns(UserWarning, match=r"year\.npy: is not read\. For it to be read, put it into nodes/"):
        read_folder(folder)


def test_files_that_nothing_reads_are_named(tmp_path: Path) -> None:
    folder = save_arrays(tmp_path / "m", edge_index=EDGE_INDEX, trian_mask=np.zeros(NODES, bool))
    (folder / "nodes.parquet").write_bytes(b"")
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
    assert said[0].startswith("nodes/year.csv")
    assert said[1].startswith("nodes.parquet") and "as .npy files into nodes/" in said[1]
    assert said[2].startswith("trian_mask.npy: is not read. Is train_mask.npy meant?")
    assert said[3].startswith("node: the folder is not read. Is nodes/ meant?")


def test_edges_are_mapped_not_read(tmp_path: Path) -> None:
    path = write_folder(tiny_dataset(), tmp_path / "set")
    dataset = read_folder(path)
    dataset.edge_index[0, 0] = 3  # this process's copy only
    assert same(read_folder(path), tiny_dataset())


BY_HAND: list[tuple[str, str, dict[str, Any], str]] = [
    ("edge_index", "edge_index", {"edge_index": EDGE_INDEX.astype(float)}, "dtype is float64"),
    ("edge_index", "edge_index", {"edge_index": EDGE_INDEX.T}, "shape is [60, 2]"),
    ("edge_index", "edge_index", {"edge_index": EDGE_INDEX - 1}, "node id -1"),
    ("edge_index", "edge_index", {"edge_index": EDGE_INDEX + 1}, "node id 20"),
    ("dst", "dst", {"edge_index": None, "src": EDGE_INDEX[0], "dst": EDGE_INDEX[1][:-1]}, "shape is [59]"),
    ("dst", "dst", {"edge_index": None, "src": EDGE_INDEX[0], "dst": EDGE_INDEX[1] * 1.0}, "float64"),
    ("dst", "dst", {"edge_index": None, "src": EDGE_INDEX[0]}, "does not exist"),
    ("x", "x", {"x": np.zeros((NODES, 2), complex)}, "dtype is complex128"),
    ("x", "x", {"x": np.full((NODES, 2), np.nan)}, "value nan at position [0, 0]"),
    ("x", "x", {"x": np.zeros(()), "train_mask": np.zeros(NODES, bool)}, "shape is []"),
    ("x", "x", {"x": np.zeros((NODES, 2)), "nodes/x": np.zeros((NODES, 2))}, "nodes/x.npy is there too"),
    ("y", "y", {"y": np.full(NODES, "a")}, "dtype is <U1"),
    ("y", "y", {"y": np.full(NODES, -7)}, "label -7"),
    ("nodes/time", "time", {"nodes/time": np.zeros(NODES + 1)}, "shape is [21], expected 20 rows"),
    ("edges/time", "time", {"edges/time": np.zeros(NODES)}, "shape is [20], expected 60 rows"),
    ("splits/calib", "calib", {"splits/calib": np.array([NODES])}, "node id 20"),
    ("splits/calib", "calib", {"splits/calib": np.zeros(2)}, "dtype is float64"),
    ("train_idx", "train", {"train_idx": np.array([NODES])}, "node id 20"),
    ("val_idx", "val", {"val_idx": np.array([1]), "train_idx": np.array([1])}, "is in train too"),
    ("train_mask", "train_mask", {"train_mask": np.zeros(NODES - 1, bool)}, "is bool [19]"),
    ("train_mask", "train_mask", {"train_mask": np.zeros(NODES)}, "is float64 [20]"),
    ("test_mask", "test_mask", {"test_mask": np.zeros(NODES, bool), "test_idx": np.zeros(0, int)}, "too"),
    ("test_idx", "test_idx", {"splits/test": np.zeros(0, int), "test_idx": np.zeros(0, int)}, "too"),
    ("edge_attr", "edge_attr", {"edge_attr": np.zeros((EDGES + 1, 2))}, "shape is [61, 2]"),
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


def meta_with(folder: Path, **changes: Any) -> None:
    file = folder / "META.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize("array", ["edge_index", "nodes/x", "nodes/y", "splits/train", "splits/test"])
@pytest.mark.parametrize("kind", ["truncated", "flipped", "gone", "other type", "other shape", "objects"])
def test_damage_to_any_array_is_named(tmp_path: Path, array: str, kind: str) -> None:
    folder = write_folder(tiny_dataset(), tmp_path / "set")
    file = folder / f"{array}.npy"
    content = file.read_bytes()
    values = np.load(file)
    if kind == "truncated":
        file.write_bytes(content[:-3])
    elif kind == "flipped":
        file.write_bytes(content[:-8] + bytes([content[-8] ^ 1]) + content[-7:])
    elif kind == "gone":
        file.unlink()
    elif kind == "other type":
        np.save(file, values.astype(np.float64))
    elif kind == "other shape":
        np.save(file, values[..., :-1])
    else:
        np.save(file, values.astype(object), allow_pickle=True)
    facts = {
        "truncated": "file is truncated",
        "flipped": "sha256 is",
        "gone": "the file does not exist",
        "other type": "META.json says",
        "other shape": "META.json says",
        "objects": "dtype is object",
    }
    for read in (read_folder, verify_folder):
        if read is verify_folder and kind.startswith("other"):
            facts[kind] = "sha256 is"
        with pytest.raises(DatasetError) as error:
            read(folder)
        assert str(error.value).startswith(f"{file}: {file.stem}: ") and facts[kind] in str(error.value)


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
    meta_with(folder, **changes)
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


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match="no such folder"):
        read_folder(tmp_path / "absent")
    with pytest.raises(DatasetNotFoundError, match="edge_index: the folder has no edges"):
        read_folder(tmp_path)


def test_writing_never_overwrites_and_leaves_nothing_behind(tmp_path: Path) -> None:
    write_folder(tiny_dataset(), tmp_path / "set")
    with pytest.raises(DatasetError, match="exists already"):
        write_folder(tiny_dataset(), tmp_path / "set")
    with pytest.raises(RuntimeError, match="stop"), new_folder(tmp_path / "other") as folder:
        (folder / "half.npy").write_bytes(b"")
        raise RuntimeError("stop")
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
