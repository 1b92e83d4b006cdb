"""Folders of graphs of several node types and relations."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyg_batchgnn.data import Dataset, DatasetError, Group, RowKind, read_folder, verify_folder, write_folder
from pyg_batchgnn.data.meta import attribute_array, attribute_of, edge_array, group_folder, group_of_folder
from tests.support.tiers import fixed
from tests.support.tiny_datasets import equal
from tests.support.typed_datasets import typed_datasets

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


def test_edges_by_relation_in_parquet(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = by_hand(tmp_path / "graph")
    edges = torch.tensor(np.load(path / "edge_index" / "author__writes__paper.npy"))
    (path / "edge_index" / "author__writes__paper.npy").unlink()
    for number, piece in enumerate((edges[:, :2], edges[:, 2:])):
        table = arrow.table({"src": piece[0].numpy(), "dst": piece[1].numpy()})
        parquet.write_table(table, path / "edge_index" / f"author__writes__paper.{number}.parquet")
    assert torch.equal(read_folder(path).edges_of(WRITES).edge_index, edges)


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("edge_index/authors.npy", r"authors\.npy: edge_index: is not named by a relation"),
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


def test_arrays_of_homogeneous_graphs_are_named_in_a_typed_folder(tmp_path: Path) -> None:
    (tmp_path / "edge_index").mkdir()
    np.save(tmp_path / "edge_index" / "a__to__b.npy", np.array([[0, 1], [1, 0]]))
    for name in ("x", "train_mask", "src"):
        np.save(tmp_path / f"{name}.npy", np.zeros(2))
    with pytest.warns(UserWarning) as caught:
        read_folder(tmp_path)
    said = sorted(str(one.message).split(":")[0].rpartition("/")[2] for one in caught)
    assert said == ["src.npy", "train_mask.npy", "x.npy"]
