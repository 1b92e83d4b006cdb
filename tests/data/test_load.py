"""One way in: load_dataset and its kin; every flaw of a data set is named."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from pyg_batchgnn.data import (
    DatasetError,
    DatasetNotFoundError,
    GeneratorSpec,
    available_datasets,
    check_dataset,
    default_dataset,
    generate,
    load_dataset,
    read_folder,
    write_folder,
)
from pyg_batchgnn.data import load as load_module
from pyg_batchgnn.data.folder_write import arrays_of
from pyg_batchgnn.data.places import DATA_VARIABLE, data_folders
from tests.support.damaged_folders import said
from tests.support.tiny_datasets import CLASSES, FEATURES, changed, same, tiny_dataset, write_bundle


def test_by_name_with_options_after_a_colon(tmp_path: Path) -> None:
    write_bundle(tmp_path)
    assert load_dataset("toy", tmp_path).num_features == FEATURES
    assert load_dataset("toy:feature_dim=3", tmp_path).num_features == 3
    assert same(
        load_dataset("toy:feature_dim=3,projection_seed=1", tmp_path),
        load_dataset("toy", tmp_path, feature_dim=3, projection_seed=1),
    )


def test_folder_by_path_and_below_root(tmp_path: Path) -> None:
    write_folder(tiny_dataset(), tmp_path / "set")
    assert same(load_dataset(tmp_path / "set"), tiny_dataset())
    assert same(load_dataset(str(tmp_path / "set")), tiny_dataset())
    assert same(load_dataset("./set", tmp_path), tiny_dataset())
    write_folder(tiny_dataset(), tmp_path / "a:b=c")
    assert same(load_dataset(tmp_path / "a:b=c"), tiny_dataset())


def test_generated_in_memory_and_on_disk(tmp_path: Path) -> None:
    made = load_dataset("generated:nodes=1000,seed=4,degree=5.5")
    assert same(made, generate(GeneratorSpec(nodes=1000, seed=4, degree=5.5)))
    assert same(load_dataset("generated:nodes=1000,seed=4,degree=5.5", tmp_path), made)
    (folder,) = tmp_path.iterdir()
    written = (folder / "META.json").stat().st_mtime_ns
    assert same(load_dataset(made.name, tmp_path), made)  # its own name finds it again
    assert (folder / "META.json").stat().st_mtime_ns == written


def test_generated_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    load_dataset("generated:nodes=1000", tmp_path)
    (folder,) = tmp_path.iterdir()
    said("origin", "generator_version", value=0)(folder)
    with pytest.raises(DatasetError, match="holds something else"):
        load_dataset("generated:nodes=1000", tmp_path)


MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    ("coraa", {}, "no data set or folder of that name"),
    ("", {}, "no edges"),
    ("./absent", {}, "no such folder"),
    ("generated:nodes", {}, "option 'nodes' has no value"),
    ("generated:nodes=many", {}, "option nodes is 'many'; give a whole number"),
    ("generated:degree=many", {}, "option degree is 'many'; give a number"),
    ("generated:sides=5", {}, "no option 'sides'"),
    ("generated:nodes=1000", {"nodes": 5}, "given twice"),
    ("generated:nodes=100000000", {}, "with `batchgnn generate` or generate_folder"),
    ("generated", {"nodes": None}, "nodes is None"),
    ("toy", {"colour": "red"}, "no option 'colour' for this data set; it takes feature_dim"),
    ("toy:feature_dim=x", {}, "give a whole number"),
    ("toy:undirected=maybe", {}, "choose among keep, merge"),
    ("ogbn-arxiv:download=perhaps", {}, "choose among if_missing, never"),
]


@pytest.mark.parametrize(("name", "options", "fact"), MISTAKES)
def test_mistakes_are_one_line(nowhere: Path, monkeypatch: Any, name: str, options: Any, fact: str) -> None:
    write_bundle(nowhere)
    monkeypatch.chdir(nowhere)
    with pytest.raises(DatasetError) as error:
        load_dataset(name, **options)
    assert fact in str(error.value) and "\n" not in str(error.value)
    assert isinstance(error.value, ValueError)


@pytest.mark.parametrize("given", [3, None, b"cora"])
def test_neither_a_name_nor_a_path(given: Any) -> None:
    kind = type(given).__name__
    with pytest.raises(TypeError, match=f"must be a str or a PathLike, got {kind}; give a name such as"):
        load_dataset(given)


def test_an_unreadable_file_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "edge_index.npy")

    path = write_folder(tiny_dataset(), tmp_path / "set")
    monkeypatch.setattr(load_module, "read_folder", refuse)
    with pytest.raises(DatasetError, match=r"Permission denied: 'edge_index\.npy'"):
        load_dataset(path)


def test_not_found_is_a_file_not_found_error(nowhere: Path) -> None:
    with pytest.raises(FileNotFoundError) as error:
        load_dataset("cora")
    assert isinstance(error.value, DatasetNotFoundError)
    assert str(nowhere) in str(error.value) and "generated" in str(error.value)


def test_default_is_real_where_there_is_one(tmp_path: Path) -> None:
    write_bundle(tmp_path, "cora")
    assert default_dataset(tmp_path).name == "cora"
    write_bundle(tmp_path, "amazon_photo")
    chosen = default_dataset(tmp_path)
    assert chosen.name == "amazon_photo" and chosen.source.startswith("Real graph amazon_photo")


def test_default_is_generated_otherwise_and_says_so(nowhere: Path) -> None:
    dataset = default_dataset()
    assert dataset.name.startswith("generated:")
    assert (
        dataset.source.startswith("Generated because no real graph was found")
        and str(nowhere) in dataset.source
    )


def test_available(tmp_path: Path) -> None:
    assert available_datasets(tmp_path) == ["generated", "generated-typed", "papers-like"]
    write_bundle(tmp_path, "b")
    write_bundle(tmp_path, "a")
    assert available_datasets(tmp_path) == ["a", "b", "generated", "generated-typed", "papers-like"]


def test_where_data_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert data_folders(tmp_path) == [tmp_path]
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path / "named"))
    assert data_folders(None) == [tmp_path / "named"]
    monkeypatch.delenv(DATA_VARIABLE)
    (tmp_path / "shared" / "data").mkdir(parents=True)
    (tmp_path / "checkout").mkdir()
    monkeypatch.chdir(tmp_path / "checkout")
    assert tmp_path / "shared" / "data" not in data_folders(None)
    (tmp_path / "checkout" / "pyproject.toml").write_text("")
    assert tmp_path / "shared" / "data" in data_folders(None)


SRC, DST = np.array([0, 3, 2, 1], np.int32), np.array([1, 1, 0, 2], np.int32)


def write(path: Path, **columns: object) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize(
    "names", [("edges-0", "edges-1"), ("edges.2", "edges.10"), ("edges", "edges.0"), ("edges9b", "edges10a")]
)
def test_files_are_read_in_the_order_of_their_numbers(tmp_path: Path, names: tuple[str, str]) -> None:
    write(tmp_path / f"{names[1]}.parquet", src=SRC[2:], dst=DST[2:])
    write(tmp_path / f"{names[0]}.parquet", src=SRC[:2], dst=DST[:2])
    dataset = read_folder(tmp_path)
    assert dataset.edge_index.dtype == torch.int32
    assert np.array_equal(dataset.edge_index.numpy(), np.stack([SRC, DST]))
    assert dataset.num_nodes == 4


def test_other_columns_are_attributes_of_edges(tmp_path: Path) -> None:
    days = pa.array(np.array(["2024-01-02"] * 4, "datetime64[D]"))
    columns = {
        "weight": pa.array([0.5, None, 1.5, 2.0], pa.float32()),
        "late": [True, False, True, True],
        "paid": pa.array(np.arange(4).astype("datetime64[ms]")),
        "day": days,
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(8.0)), 2),
    }
    for number, part in enumerate((slice(0, 1), slice(1, 4))):
        some = {name: pa.array(values)[part] for name, values in columns.items()}
        write(tmp_path / f"edges.{number}.parquet", src=SRC[part], dst=DST[part], **some)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = read_folder(tmp_path)
    assert np.array_equal(dataset.edge_index.numpy(), np.stack([SRC, DST]))
    found = dataset.edges.tables
    assert found["weight"].dtype is torch.float32 and found["weight"].isnan().tolist() == [0, 1, 0, 0]
    assert found["late"].tolist() == [True, False, True, True] and found["late"].dtype is torch.bool
    assert found["paid"].tolist() == [0, 1, 2, 3] and found["paid"].dtype is torch.int64
    assert found["day"].tolist() == [19724] * 4 and found["day"].dtype is torch.int64
    assert torch.equal(found["vector"], torch.arange(8.0, dtype=torch.float64).view(4, 2))


def test_columns_that_no_tensor_holds_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "edges.parquet", name=["a"] * 4, src=SRC, dst=DST, time=SRC, of=[[1]] * 4)
    with pytest.warns(UserWarning, match=rf"{path}: the columns name \(string\), of \(list") as said:
        dataset = read_folder(tmp_path)
    assert len(said) == 1 and list(dataset.edges.tables) == ["time"]


def test_nodes_from_parquet(tmp_path: Path) -> None:
    write(tmp_path / "edges.parquet", src=SRC, dst=DST)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(12.0)), 2)
    write(tmp_path / "nodes.10.parquet", x=vectors[2:], y=[1.0, float("nan"), 0.0, 1.0])
    write(tmp_path / "nodes.9.parquet", x=vectors[:2], y=[0.0, 1.0])
    (tmp_path / "keys").mkdir()
    write(tmp_path / "keys" / "node.parquet", key=["a"])
    for name in ("tables.json", "graph.toml"):
        (tmp_path / name).write_text("")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = read_folder(tmp_path)
    assert dataset.num_nodes == 6 and dataset.num_classes == 2
    assert torch.equal(dataset.nodes.tables["x"], torch.arange(12.0).view(6, 2))
    assert dataset.nodes.tables["y"].tolist() == [0, 1, 1, -1, 0, 1]
    np.save(tmp_path / "y.npy", np.zeros(6))
    with pytest.raises(DatasetError, match=r"y\.npy: y: is a column of nodes\.9\.parquet too; remove"):
        read_folder(tmp_path)
    (tmp_path / "y.npy").unlink()
    (tmp_path / "nodes").mkdir()
    np.save(tmp_path / "nodes" / "x.npy", np.zeros(6))
    with pytest.raises(DatasetError, match=r"nodes/x\.npy: x: is a column of nodes\.9\.parquet too; remove"):
        read_folder(tmp_path)


def test_typed_nodes_from_parquet(tmp_path: Path) -> None:
    for name in ("edge_index", "nodes"):
        (tmp_path / name).mkdir()
    write(tmp_path / "edge_index" / "a__to__b.parquet", src=SRC, dst=DST, time=SRC.astype(np.int64))
    write(tmp_path / "nodes" / "a.0.parquet", key=["x"] * 5)
    write(tmp_path / "nodes" / "b.parquet", time=[4, 5, 6])
    write(tmp_path / "nodes" / "alone.parquet", time=[7])
    with pytest.warns(UserWarning, match=r"a\.0\.parquet: the columns key \(string\) are not read"):
        dataset = read_folder(tmp_path)
    assert {one.name: one.num_nodes for one in dataset.node_sets} == {"a": 5, "alone": 1, "b": 3}
    assert dataset.nodes_of("b").tables["time"].tolist() == [4, 5, 6]
    assert dataset.edges_of(("a", "to", "b")).tables["time"].tolist() == SRC.tolist()


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"src": SRC, "dst": DST}, r"edges\.1\.parquet: w: is a column of edges\.1\.parquet or of"),
        ({"src": SRC, "dst": DST, "w": SRC}, r"edges\.1\.parquet: w: is int32 \[\], but float64 \[\] in"),
        ({"src": SRC, "dst": DST, "w": [None, 1, 2, 3]}, r"edges\.1\.parquet: w: 1 values are missing; fill"),
    ],
)
def test_parts_that_differ_are_named(tmp_path: Path, other: dict[str, object], says: str) -> None:
    write(tmp_path / "edges.0.parquet", src=SRC, dst=DST, w=SRC * 0.5)
    write(tmp_path / "edges.1.parquet", **other)
    with pytest.raises(DatasetError, match=says):
        read_folder(tmp_path)


def test_a_column_that_is_there_twice(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(SRC), pa.array(DST), pa.array(SRC)], ["src", "dst", "src"])
    pq.write_table(table, tmp_path / "edges.parquet")
    with pytest.raises(DatasetError, match=r"edges.parquet: src: 2 columns of this name among"):
        read_folder(tmp_path)


def test_edges_in_two_forms(tmp_path: Path) -> None:
    write(tmp_path / "edges.parquet", src=SRC, dst=DST)
    np.save(tmp_path / "src.npy", SRC)
    with pytest.warns(UserWarning, match="src.npy: is not read"):
        read_folder(tmp_path)
    np.save(tmp_path / "dst.npy", DST)
    with pytest.raises(DatasetError, match=r"edges.parquet: edge_index: src.npy is there too; remove one"):
        read_folder(tmp_path)
    np.save(tmp_path / "edge_index.npy", np.stack([SRC, DST]))
    with pytest.raises(DatasetError, match=r"src.npy: edge_index: edge_index.npy is there too; remove one"):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    ("columns", "array", "fact"),
    [
        ({"src": SRC}, "dst", "no such column among ['src']"),
        ({"src": SRC, "dst": DST * 0.5}, "dst", "type is double"),
        ({"src": pa.array([0, None, 2, 1]), "dst": DST}, "src", "1 values are missing"),
        ({"src": SRC - 1, "dst": DST}, "edge_index", "node id -1"),
    ],
)
def test_bad_columns_are_named(tmp_path: Path, columns: dict[str, object], array: str, fact: str) -> None:
    path = write(tmp_path / "edges.parquet", **columns)
    with pytest.raises(DatasetError) as error:
        read_folder(tmp_path)
    assert str(error.value).startswith(f"{path}: {array}: ") and fact in str(error.value)


def test_truncated(tmp_path: Path) -> None:
    path = write(tmp_path / "edges.parquet", src=SRC, dst=DST)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DatasetError) as error:
        read_folder(tmp_path)
    assert str(error.value).startswith(f"{path}: src, dst: not readable as Parquet")


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "edges.parquet", src=SRC, dst=DST)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(DatasetError, match="pip install pyarrow"):
        read_folder(tmp_path)


INF, NAN = float("inf"), float("nan")


def with_value(array: str, at: Any, value: float) -> dict[str, torch.Tensor]:
    tensor = arrays_of(tiny_dataset())[array].clone()
    tensor[at] = value
    return {array: tensor}


def idx(*nodes: int) -> torch.Tensor:
    return torch.tensor(nodes)


FLAWS = [
    ({"num_nodes": NAN}, "num_nodes", "nan"),
    ({"num_nodes": -1}, "num_nodes", "-1"),
    ({"num_classes": 2.5}, "num_classes", "2.5"),
    ({"edge_index": torch.zeros(3, 4, dtype=torch.int64)}, "edge_index", "shape is [3, 4]"),
    ({"edge_index": torch.zeros(2, 4)}, "edge_index", "dtype is float32"),
    (with_value("edge_index", (1, 7), 20), "edge_index", "node id 20 at position [1, 7]"),
    (with_value("edge_index", (0, 0), -1), "edge_index", "node id -1 at position [0, 0]"),
    ({"nodes/x": torch.zeros(19, 5)}, "nodes/x", "shape is [19, 5], expected 20 rows"),
    ({"nodes/x": torch.zeros(())}, "nodes/x", "shape is [], expected 20 rows"),
    ({"nodes/x": torch.eye(20).to_sparse()}, "nodes/x", "is stored as torch.sparse_coo"),
    (with_value("nodes/x", (3, 2), NAN), "nodes/x", "value nan at position [3, 2]"),
    (with_value("nodes/y", 5, CLASSES), "nodes/y", "label 3 at position [5]"),
    ({"splits/train": torch.zeros(8, dtype=torch.int32)}, "splits/train", "dtype is int32"),
    ({"splits/train": torch.zeros(8, 1, dtype=torch.int64)}, "splits/train", "shape is [8, 1]"),
    ({"splits/val": idx(9, 20)}, "splits/val", "node id 20 at position [1]"),
    ({"splits/test": idx(12, 13, 12)}, "splits/test", "node 12 is listed more than once"),
    ({"splits/test": idx(12, 11)}, "splits/test", "node 11 is in val too"),
    (with_value("nodes/y", 3, -1), "splits/train", "1 of 8 nodes have no label (y is -1), node 3 first"),
    ({"edges/edge_attr": torch.zeros(59)}, "edges/edge_attr", "shape is [59]"),
]


@pytest.mark.parametrize(("changes", "array", "fact"), FLAWS, ids=[f"{a}: {f}" for _, a, f in FLAWS])
def test_flaw_is_named(changes: dict[str, Any], array: str, fact: str) -> None:
    dataset = changed(tiny_dataset(), changes)
    with pytest.raises(DatasetError) as error:
        check_dataset(dataset, {array: "some/file.npy"})
    message = str(error.value)
    assert message.startswith(f"some/file.npy: {array.rpartition('/')[2]}: ")
    assert fact in message
    assert "; " in message and "\n" not in message


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"nodes/x": None, "nodes/y": None},
        {"splits/test": idx(19)},  # a node without a label, which a task refuses
        {"nodes/x": torch.zeros(20, 5, dtype=torch.float64)},
        {"nodes/x": torch.zeros(20, dtype=torch.int8)},
        {"nodes/y": torch.full((20, 4), -7.0)},
        {"nodes/y": torch.zeros(20, 1, dtype=torch.uint8)},
        {"nodes/second": torch.full((20, 2, 2), float("nan")), "nodes/time": torch.arange(20)},
        {"edge_index": torch.empty(2, 0, dtype=torch.int32)},
        {"edges/edge_attr": torch.zeros(60, 2), "edges/weight": torch.zeros(60, dtype=torch.bool)},
        {f"splits/{name}": torch.empty(0, dtype=torch.int64) for name in ("train", "val", "test")},
        {"splits/calib": idx(0, 0, 19)},
    ],
)
def test_sound_data_sets_pass(changes: dict[str, Any]) -> None:
    dataset = changed(tiny_dataset(), changes)
    assert check_dataset(dataset) is dataset
