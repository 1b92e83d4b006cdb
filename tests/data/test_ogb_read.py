"""OGB's raw layouts, from made-up files."""

import gzip
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pyg_batchgnn.data import (
    Dataset,
    DatasetError,
    DatasetNotFoundError,
    available_datasets,
    load_dataset,
    read_ogb,
)
from pyg_batchgnn.data.folder_write import arrays_of
from pyg_batchgnn.data.ogb.read import Download
from tests.support.tiny_datasets import (
    EDGES,
    FEATURES,
    NODES,
    equal,
    write_csv,
    write_ogb_binary,
    write_ogb_csv,
    write_ogb_typed,
)


def same_nodes(read: Dataset, written: Dataset) -> bool:
    left, right = ({n: t for n, t in arrays_of(one).items() if n != "edge_index"} for one in (read, written))
    return left.keys() == right.keys() and all(equal(left[name], right[name]) for name in left)


def test_arxiv_is_directed(tmp_path: Path) -> None:
    folder, written = write_ogb_csv(tmp_path, "ogbn-arxiv", "time")
    read = load_dataset("ogbn-arxiv", tmp_path)
    assert same_nodes(read, written) and torch.equal(read.edge_index, written.edge_index)
    assert read.edge_index.dtype == torch.int32
    assert (read.name, read.num_nodes, read.num_classes) == ("ogbn-arxiv", NODES, 40)
    assert str(folder) in read.source


def test_products_comes_in_both_directions(tmp_path: Path) -> None:
    _, written = write_ogb_csv(tmp_path, "ogbn-products", "sales_ranking")
    read = load_dataset("ogbn-products", tmp_path)
    assert same_nodes(read, written) and read.num_classes == 47
    assert torch.equal(read.edge_index[:, :EDGES], written.edge_index)
    assert torch.equal(read.edge_index[:, EDGES:], written.edge_index.flip(0))


def test_papers_nan_labels_become_minus_one(tmp_path: Path) -> None:
    _, written = write_ogb_binary(tmp_path)
    read = load_dataset("ogbn-papers100M", tmp_path)
    assert same_nodes(read, written) and torch.equal(read.edge_index, written.edge_index)
    assert read.nodes.tables["y"][-1] == -1 and read.num_classes == 172


def test_papers_in_pieces_that_cut_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, written = write_ogb_binary(tmp_path)
    monkeypatch.setattr("pyg_batchgnn.data.ogb.npz_stream.NpzMember.pieces.__defaults__", (16,))
    read = load_dataset("ogbn-papers100M", tmp_path)
    assert same_nodes(read, written) and torch.equal(read.edge_index, written.edge_index)


def test_converted_once_and_again_when_the_raw_files_change(tmp_path: Path) -> None:
    folder, _ = write_ogb_csv(tmp_path, "ogbn-arxiv", "time")
    read_ogb("ogbn-arxiv", tmp_path)
    marker = folder / "pyg_batchgnn" / "META.json"
    first = marker.stat().st_mtime_ns
    read_ogb("ogbn-arxiv", tmp_path)
    assert marker.stat().st_mtime_ns == first
    write_csv(folder / "split" / "time" / "train.csv.gz", [0, 1])
    assert read_ogb("ogbn-arxiv", tmp_path).split("train").tolist() == [0, 1]
    shutil.rmtree(folder / "raw")
    shutil.rmtree(folder / "split")
    assert read_ogb("ogbn-arxiv", tmp_path, download=Download.NEVER).num_nodes == NODES
    assert [path.name for path in folder.iterdir()] == ["pyg_batchgnn"]


def test_root_may_be_the_folder_itself_and_the_result_elsewhere(tmp_path: Path) -> None:
    folder, _ = write_ogb_csv(tmp_path, "ogbn-arxiv", "time")
    read_ogb("ogbn-arxiv", folder, converted=tmp_path / "elsewhere")
    assert not (folder / "pyg_batchgnn").exists() and (tmp_path / "elsewhere" / "nodes" / "x.npy").is_file()
    assert available_datasets(tmp_path) == ["ogbn-arxiv", "generated", "generated-typed"]


def test_never_removes_a_folder_that_is_not_its_own(tmp_path: Path) -> None:
    write_ogb_csv(tmp_path, "ogbn-arxiv", "time")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    with pytest.raises(DatasetError, match="is not a converted OGB data set"):
        read_ogb("ogbn-arxiv", tmp_path, converted=mine)
    assert (mine / "thesis.txt").exists()


def rewrite_csv(folder: Path, file: str, kind: str) -> None:
    path = folder / file
    if kind == "truncated":
        path.write_bytes(path.read_bytes()[:-10])
    elif kind == "gone":
        path.unlink()
    elif kind == "row lost":
        path.write_bytes(gzip.compress(b"\n".join(gzip.decompress(path.read_bytes()).split(b"\n")[1:])))
    elif kind == "two graphs":
        write_csv(path, [10, 10])
    elif kind == "nan":
        write_csv(path, ["nan"])
    elif kind == "out of range":
        write_csv(path, [[0, NODES]] * EDGES)
    elif kind == "half":
        write_csv(path, [0.5] * NODES)
    elif kind == "class":
        write_csv(path, [40] * NODES)


FLAWS = [
    ("raw/edge.csv.gz", "truncated", "raw/edge.csv.gz: edge_index: truncated or damaged gzip"),
    ("raw/edge.csv.gz", "gone", "raw/edge.csv.gz: the file does not exist"),
    ("raw/edge.csv.gz", "row lost", "raw/edge.csv.gz: edge_index: has 59 rows, num-edge-list says 60"),
    ("raw/edge.csv.gz", "out of range", "raw/edge.csv.gz: edge_index: node id 20"),
    ("raw/num-node-list.csv.gz", "two graphs", "num-node-list.csv.gz: num_nodes: holds [10, 10]"),
    ("raw/num-node-list.csv.gz", "nan", "num-node-list.csv.gz: num_nodes: row 0 holds 'nan'"),
    ("raw/node-feat.csv.gz", "row lost", "raw/node-feat.csv.gz: x: has 19 rows, num-node-list says 20"),
    ("raw/node-label.csv.gz", "row lost", "raw/node-label.csv.gz: y: has 19 rows"),
    ("raw/node-label.csv.gz", "half", "raw/node-label.csv.gz: y: label 0.5"),
    ("raw/node-label.csv.gz", "class", "nodes/y.npy: y: label 40"),
    ("split/time/valid.csv.gz", "gone", "valid.csv.gz: the file does not exist"),
    ("split/time/valid.csv.gz", "truncated", "valid.csv.gz: val: truncated"),
    ("split/time/valid.csv.gz", "class", "splits/val.npy: val: node id 40"),
]


@pytest.mark.parametrize(("file", "kind", "fact"), FLAWS)
def test_flaws_of_csv_files_are_named(tmp_path: Path, file: str, kind: str, fact: str) -> None:
    folder, _ = write_ogb_csv(tmp_path, "ogbn-arxiv", "time")
    rewrite_csv(folder, file, kind)
    with pytest.raises(DatasetError) as error:
        read_ogb("ogbn-arxiv", tmp_path)
    assert fact in str(error.value) and str(folder) in str(error.value)
    assert not list(folder.glob(".*"))  # nothing half made is left


BINARY_FLAWS: list[tuple[dict[str, Any], str]] = [
    (
        {"edge_index": np.zeros((2, EDGES - 1), int)},
        "data.npz: edge_index: shape is [2, 59], expected [2, 60]",
    ),
    ({"edge_index": np.full((2, EDGES), NODES)}, "data.npz: edge_index: node id 20"),
    ({"edge_index": np.zeros((2, EDGES))}, "data.npz: edge_index: dtype is float64"),
    ({"edge_index": np.zeros((2, EDGES), object)}, "data.npz: edge_index: dtype is object"),
    ({"node_feat": np.zeros((NODES - 1, 3), np.float32)}, "data.npz: node_feat: shape is [19, 3]"),
    ({"node_feat": np.zeros((NODES, 3), int)}, "data.npz: node_feat: dtype is int64"),
    ({"node_feat": np.zeros(NODES, np.float32)}, "data.npz: node_feat: shape is [20]"),
    ({"node_feat": np.full((NODES, 3), np.nan, np.float32)}, "nodes/x.npy: x: value nan"),
    ({"num_nodes_list": np.array([np.nan])}, "data.npz: num_nodes_list: holds [nan]"),
    ({"num_nodes_list": np.array([10, 10])}, "data.npz: num_nodes_list: holds [10, 10]"),
    ({"num_edges_list": np.array([-1])}, "data.npz: num_edges_list: holds [-1]"),
]


@pytest.mark.parametrize(("changes", "fact"), BINARY_FLAWS)
def test_flaws_of_binary_files_are_named(tmp_path: Path, changes: dict[str, Any], fact: str) -> None:
    write_ogb_binary(tmp_path, **changes)
    with pytest.raises(DatasetError) as error:
        read_ogb("ogbn-papers100M", tmp_path)
    assert fact in str(error.value)


def test_truncated_binary_is_named(tmp_path: Path) -> None:
    folder, _ = write_ogb_binary(tmp_path)
    file = folder / "raw" / "data.npz"
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(DatasetError, match=r"data\.npz: num_nodes_list: truncated or damaged archive"):
        read_ogb("ogbn-papers100M", tmp_path)


def test_absent_and_not_to_be_downloaded(nowhere: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match=str(nowhere / "ogbn_arxiv")):
        load_dataset("ogbn-arxiv:download=never")


def test_features_have_their_width(tmp_path: Path) -> None:
    write_ogb_csv(tmp_path, "ogbn-arxiv", "time")
    assert read_ogb("ogbn-arxiv", tmp_path).num_features == FEATURES


# Several node types ###############################################################################


def test_mag_has_four_types(tmp_path: Path) -> None:
    folder = write_ogb_typed(tmp_path)
    dataset = load_dataset("ogbn-mag", tmp_path)
    assert dataset.schema.node_types == ("author", "field_of_study", "institution", "paper")
    assert [nodes.num_nodes for nodes in dataset.node_sets] == [3, 2, 1, 4]
    assert [names[1] for names in dataset.schema.relations] == [
        *("affiliated_with", "writes", "cites", "has_topic"),
    ]
    papers = dataset.nodes_of("paper")
    assert papers.tables["x"].dtype == torch.float32 and papers.tables["x"][:, 0].tolist() == [0, 1, 2, 3]
    assert papers.tables["node_year"].tolist() == [2010, 2011, 2012, 2013]
    assert papers.tables["y"].tolist() == [3, 348, 0, 7] and papers.num_classes == 349
    assert {name: ids.tolist() for name, ids in papers.splits.items()} == {
        **{"train": [0, 2], "val": [1], "test": [3]},
    }
    cites = dataset.edges_of(("paper", "cites", "paper"))
    assert cites.edge_index.tolist() == [[0, 3, 3], [1, 2, 0]] and cites.edge_index.dtype == torch.int32
    assert cites.tables["edge_reltype"].tolist() == [0, 0, 0]
    assert all(not nodes.tables for nodes in dataset.node_sets if nodes.name != "paper")
    again = folder / "pyg_batchgnn" / "META.json"
    before = again.stat().st_mtime_ns
    assert load_dataset("ogbn-mag", tmp_path).schema == dataset.schema  # not converted again
    assert again.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("file", "rows", "says"),
    [
        (
            "relations/paper___cites___paper/edge.csv.gz",
            [[0, 1], [3, 4], [3, 0]],
            r"edge \[3, 4\] is outside",
        ),
        ("relations/paper___cites___paper/num-edge-list.csv.gz", [9], "has 3 rows, num-edge-list says 9"),
        ("node-label/paper/node-label.csv.gz", [1, 2], "has 2 rows, expected 4"),
        ("triplet-type-list.csv.gz", [["paper", "cites", "venue"]], "venue"),
        ("num-node-dict.csv.gz", [["paper"], ["many"]], "expected counts"),
        ("nodetype-has-label.csv.gz", [["paper"]], "expected a header and one row"),
    ],
)
def test_damaged_files_of_types_are_named(tmp_path: Path, file: str, rows: Any, says: str) -> None:
    folder = write_ogb_typed(tmp_path)
    write_csv(folder / "raw" / file, rows)
    with pytest.raises(DatasetError, match=says) as error:
        read_ogb("ogbn-mag", tmp_path)
    assert Path(file).name.partition(".")[0] in str(error.value)
    assert not (folder / "pyg_batchgnn").exists()


def test_raw_arrays_that_are_left_out_are_named(tmp_path: Path) -> None:
    folder, _ = write_ogb_csv(tmp_path, "ogbn-arxiv", "time")
    with gzip.open(folder / "raw" / "node_year.csv.gz", "wt") as file:
        file.write("2020\n" * NODES)
    with pytest.warns(UserWarning, match=r"ogbn-arxiv also has raw/node_year.csv.gz, which the conversion"):
        load_dataset("ogbn-arxiv", tmp_path)
    write_ogb_binary(tmp_path)
    with pytest.warns(UserWarning, match="also has node_year in raw/data.npz, which the conversion leaves"):
        load_dataset("ogbn-papers100M", tmp_path)
