"""Graphs in OGB's files: tables, arrays, downloads, and what is refused."""

import builtins
import gzip
import shutil
import sys
import types
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyg_batchgnn.data import Dataset, DatasetError, DatasetNotFoundError, load_dataset, read_ogb
from pyg_batchgnn.data.files.npy import csv_gz_pieces, open_member, read_csv_gz
from pyg_batchgnn.data.folder_write import arrays_of
from pyg_batchgnn.data.ogb.facts import OGB_TABLES
from pyg_batchgnn.data.ogb.read import Download
from tests.support.tiers import examples
from tests.support.tiny_datasets import (
    EDGES,
    NODES,
    cut_bytes,
    equal,
    flip_byte,
    write_csv,
    write_ogb_binary,
    write_ogb_csv,
    write_ogb_typed,
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("csv") / "t.csv.gz"


@examples(40)
@given(
    st.lists(st.tuples(st.integers(-(2**62), 2**62), st.integers(0, 9)), min_size=1, max_size=30),
    st.integers(1, 64),
)
def test_pieces_of_any_size_give_the_same_rows(table: Path, rows: list[tuple[int, int]], size: int) -> None:
    write_csv(table, rows)
    pieces = list(csv_gz_pieces(table, "a", np.int64, 2, piece_bytes=size))
    assert np.concatenate(pieces).tolist() == [list(row) for row in rows]


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        (b"1,2\n3\n", "columns"),
        (b"1,2,3\n3,4,5\n", "there are 3 columns, expected 2"),
        (b"1,2\n3,four\n", "'four' to int64"),
        (b"1,2\n3,\n", "'' to int64"),
        (b"1,2\n3,4.5\n", "'4.5' to int64"),
        (b"src,dst\n3,4\n", "among the rows from 0 on: could not convert string 'src'"),
    ],
)
@pytest.mark.parametrize("piece_bytes", [1 << 20, 4])
def test_bad_rows_are_named(tmp_path: Path, text: bytes, fact: str, piece_bytes: int) -> None:
    path = tmp_path / "edge.csv.gz"
    path.write_bytes(gzip.compress(text))
    with pytest.raises(DatasetError) as error:
        list(csv_gz_pieces(path, "edge_index", np.int64, 2, piece_bytes))
    assert str(error.value).startswith(f"{path}: edge_index: among the rows") and fact in str(error.value)


@pytest.mark.parametrize("kind", ["truncated", "altered", "foreign"])
def test_damaged_gzip_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "edge.csv.gz"
    content = gzip.compress(b"1,2\n" * 1000)
    middle = len(content) // 2
    path.write_bytes(
        {
            "truncated": content[:-9],
            "altered": content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :],
            "foreign": b"1,2\n",
        }[kind]
    )
    with pytest.raises(DatasetError) as error:
        read_csv_gz(path, "edge_index", np.int64)
    assert str(error.value).startswith(f"{path}: edge_index: truncated or damaged gzip")


def install_ogb(monkeypatch: pytest.MonkeyPatch, download_url: Any) -> None:
    """Installs a package `ogb` without data set classes, in which every question fails."""
    url = types.ModuleType("ogb.utils.url")

    def extract_zip(path: str, folder: str) -> None:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder)

    url.download_url, url.extract_zip = download_url, extract_zip  # type: ignore[attr-defined]
    for name, module in (("ogb", None), ("ogb.utils", None), ("ogb.utils.url", url)):
        monkeypatch.setitem(sys.modules, name, module or types.ModuleType(name))

    def ask(*_: object) -> str:
        raise AssertionError("a question was asked")

    monkeypatch.setattr(builtins, "input", ask)


def archive(folder: Path) -> Path:
    made, _ = write_ogb_csv(folder / "made", "ogbn-arxiv", "time")
    made.rename(made.with_name("arxiv"))
    return Path(shutil.make_archive(str(folder / "archive"), "zip", folder / "made"))


def test_downloads_unpacks_and_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, asked = archive(tmp_path), []

    def download_url(url: str, folder: str) -> str:
        asked.append(url)
        return shutil.copy(made, Path(folder) / "arxiv.zip")

    install_ogb(monkeypatch, download_url)
    root = tmp_path / "new" / "root"
    assert read_ogb("ogbn-arxiv", root).num_nodes == NODES
    assert read_ogb("ogbn-arxiv", root).num_nodes == NODES
    assert asked == [OGB_TABLES["ogbn-arxiv"].url]
    assert [path.name for path in root.iterdir()] == ["ogbn_arxiv"]


def failing(error: BaseException | None) -> Any:
    def download_url(url: str, folder: str) -> str:
        (Path(folder) / "arxiv.zip").write_bytes(b"<html>not found</html>")
        if error is None:
            return str(Path(folder) / "arxiv.zip")
        try:
            raise error
        except URLError:
            raise
        except BaseException:
            raise RuntimeError("Stopped downloading due to interruption.")  # noqa: B904 (as ogb does)

    return download_url


@pytest.mark.parametrize(
    "error", [URLError("no route to host"), OSError("disk full"), TypeError("no length"), None]
)
def test_a_failure_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    install_ogb(monkeypatch, failing(error))
    with pytest.raises(DatasetError) as caught:
        read_ogb("ogbn-arxiv", tmp_path)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'ogbn_arxiv'}: ogbn-arxiv could not be downloaded from http")
    assert "unpack" in message and "\n" not in message
    assert not list(tmp_path.iterdir())


def test_ctrl_c_stays_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_ogb(monkeypatch, failing(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        read_ogb("ogbn-arxiv", tmp_path)


def test_without_ogb_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ogb", None)
    with pytest.raises(DatasetNotFoundError) as error:
        read_ogb("ogbn-papers100M", tmp_path)
    message = str(error.value)
    assert "pip install ogb" in message and OGB_TABLES["ogbn-papers100M"].url in message
    assert str(tmp_path / "ogbn_papers100M") in message


VALUES = np.random.default_rng(0).random(1000)


@pytest.mark.parametrize(
    ("damage", "fact"),
    [
        (lambda path: cut_bytes(path, 30), "truncated or damaged archive"),
        (lambda path: flip_byte(path, 4000), "truncated or damaged archive (Bad CRC-32"),
        (lambda path: path.write_bytes(b"hello"), "truncated or damaged archive"),
        (lambda path: np.savez(path, y=VALUES), "no such array, the archive has ['y']"),
        (lambda path: np.savez(path, x=VALUES.astype(object)), "dtype is object"),
        (lambda path: path.unlink(), "the file does not exist"),
    ],
)
def test_damage_is_named(tmp_path: Path, damage: Callable[[Path], object], fact: str) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, x=VALUES)
    damage(path)
    with pytest.raises(DatasetError) as error, open_member(path, "x") as member:
        list(member.pieces())
    assert str(error.value).startswith(f"{path}: x: ") and fact in str(error.value)


@pytest.mark.parametrize("extra", [-8, 8])
def test_a_member_of_another_length_than_its_header_says(tmp_path: Path, extra: int) -> None:
    import zipfile

    np.save(tmp_path / "x.npy", np.arange(10))
    content = (tmp_path / "x.npy").read_bytes()
    with zipfile.ZipFile(tmp_path / "data.npz", "w") as archive:
        archive.writestr("x.npy", content[:extra] if extra < 0 else content + b"\0" * extra)
    with (
        pytest.raises(DatasetError, match=r"data\.npz: x: (ends 8 bytes before|is longer than)"),
        open_member(tmp_path / "data.npz", "x") as member,
    ):
        member.read()


def same_nodes(read: Dataset, written: Dataset) -> bool:
    left, right = ({n: t for n, t in arrays_of(one).items() if n != "edge_index"} for one in (read, written))
    return left.keys() == right.keys() and all(equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize(("name", "split"), [("ogbn-arxiv", "time"), ("ogbn-products", "sales_ranking")])
def test_tables_of_csv(tmp_path: Path, name: str, split: str) -> None:
    folder, written = write_ogb_csv(tmp_path, name, split)
    read = load_dataset(name, tmp_path)
    ways = [written.edge_index, *([written.edge_index.flip(0)] if name == "ogbn-products" else [])]
    assert same_nodes(read, written) and torch.equal(read.edge_index, torch.cat(ways, 1))
    assert read.edge_index.dtype == torch.int32 and str(folder) in read.source
    assert (read.name, read.num_nodes) == (name, NODES)
    assert read.num_classes == (47 if name == "ogbn-products" else 40)


@pytest.mark.parametrize("piece_bytes", [1 << 24, 16])  # the second cuts rows
def test_papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int) -> None:
    _, written = write_ogb_binary(tmp_path)
    monkeypatch.setattr("pyg_batchgnn.data.files.npy.NpzMember.pieces.__defaults__", (piece_bytes,))
    read = load_dataset("ogbn-papers100M", tmp_path)
    assert same_nodes(read, written) and torch.equal(read.edge_index, written.edge_index)
    assert read.nodes.tables["y"][-1] == -1 and read.num_classes == 172  # NaN is no label


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


def test_never_removes_a_folder_that_is_not_its_own(tmp_path: Path) -> None:
    write_ogb_csv(tmp_path, "ogbn-arxiv", "time")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    with pytest.raises(DatasetError, match="is not a converted OGB data set"):
        read_ogb("ogbn-arxiv", tmp_path, converted=mine)
    assert (mine / "thesis.txt").exists()


def lose_row(path: Path) -> None:
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()).partition(b"\n")[2]))


def rows(*values: object) -> Callable[[Path], None]:
    return lambda path: write_csv(path, list(values))


FLAWS: list[tuple[str, Callable[[Path], None], str]] = [
    (
        "raw/edge.csv.gz",
        lambda path: cut_bytes(path, 10),
        "edge.csv.gz: edge_index: truncated or damaged gzip",
    ),
    ("raw/edge.csv.gz", Path.unlink, "raw/edge.csv.gz: the file does not exist"),
    ("raw/edge.csv.gz", lose_row, "raw/edge.csv.gz: edge_index: has 59 rows, num-edge-list says 60"),
    ("raw/edge.csv.gz", rows(*[[0, NODES]] * EDGES), "raw/edge.csv.gz: edge_index: node id 20"),
    ("raw/num-node-list.csv.gz", rows(10, 10), "num-node-list.csv.gz: num_nodes: holds [10, 10]"),
    ("raw/node-feat.csv.gz", lose_row, "raw/node-feat.csv.gz: x: has 19 rows, expected 20"),
    ("raw/node-label.csv.gz", rows(*[0.5] * NODES), "raw/node-label.csv.gz: y: label 0.5"),
    ("raw/node-label.csv.gz", rows(*[40] * NODES), "nodes/y.npy: y: label 40"),
    ("split/time/valid.csv.gz", rows(*[40] * NODES), "splits/val.npy: val: node id 40"),
]


@pytest.mark.parametrize(("file", "damage", "fact"), FLAWS)
def test_flaws_of_csv_files_are_named(
    tmp_path: Path, file: str, damage: Callable[[Path], None], fact: str
) -> None:
    folder, _ = write_ogb_csv(tmp_path, "ogbn-arxiv", "time")
    damage(folder / file)
    with pytest.raises(DatasetError) as error:
        read_ogb("ogbn-arxiv", tmp_path)
    assert fact in str(error.value) and str(folder) in str(error.value)
    assert not list(folder.glob(".*"))  # nothing half made is left


BINARY_FLAWS: list[tuple[dict[str, Any], str]] = [
    ({"edge_index": np.zeros((2, EDGES - 1), int)}, "edge_index: shape is [2, 59], expected [2, 60]"),
    ({"edge_index": np.full((2, EDGES), NODES)}, "data.npz: edge_index: node id 20"),
    ({"edge_index": np.zeros((2, EDGES))}, "data.npz: edge_index: dtype is float64"),
    ({"node_feat": np.zeros((NODES - 1, 3), np.float32)}, "data.npz: node_feat: shape is [19, 3]"),
    ({"node_feat": np.zeros((NODES, 3), int)}, "data.npz: node_feat: dtype is int64"),
    ({"node_feat": np.full((NODES, 3), np.nan, np.float32)}, "nodes/x.npy: x: value nan"),
    ({"num_nodes_list": np.array([np.nan])}, "data.npz: num_nodes_list: holds [nan]"),
    ({"num_edges_list": np.array([-1])}, "data.npz: num_edges_list: holds [-1]"),
]


@pytest.mark.parametrize(("changes", "fact"), BINARY_FLAWS)
def test_flaws_of_binary_files_are_named(tmp_path: Path, changes: dict[str, Any], fact: str) -> None:
    write_ogb_binary(tmp_path, **changes)
    with pytest.raises(DatasetError) as error:
        read_ogb("ogbn-papers100M", tmp_path)
    assert fact in str(error.value)


def test_absent_and_not_to_be_downloaded(nowhere: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match=str(nowhere / "ogbn_arxiv")):
        load_dataset("ogbn-arxiv:download=never")


def test_mag_has_four_types(tmp_path: Path) -> None:
    folder = write_ogb_typed(tmp_path)
    dataset = load_dataset("ogbn-mag", tmp_path)
    assert dataset.schema.node_types == ("author", "field_of_study", "institution", "paper")
    assert [nodes.num_nodes for nodes in dataset.node_sets] == [3, 2, 1, 4]
    assert [names[1] for names in dataset.schema.relations] == [
        *("affiliated_with", "writes", "cites", "has_topic")
    ]
    papers = dataset.nodes_of("paper")
    assert papers.tables["x"].dtype == torch.float32 and papers.tables["x"][:, 0].tolist() == [0, 1, 2, 3]
    assert papers.tables["node_year"].tolist() == [2010, 2011, 2012, 2013]
    assert papers.tables["y"].tolist() == [3, 348, 0, 7] and papers.num_classes == 349
    assert {name: ids.tolist() for name, ids in papers.splits.items()} == {
        **{"train": [0, 2], "val": [1], "test": [3]}
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
        ("relations/paper___cites___paper/edge.csv.gz", [[0, 1], [3, 4], [3, 0]], "node id 4 is outside"),
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
