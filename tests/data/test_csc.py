"""Folders whose edges lie by destination."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pyg_batchgnn import ops
from pyg_batchgnn.data import (
    Dataset,
    DatasetError,
    EdgeSet,
    as_dataset,
    load_dataset,
    open_folder,
    read_folder,
    verify_folder,
    write_folder,
)
from pyg_batchgnn.data.csc import MappedEdges
from tests.support.tiny_datasets import EDGES, NODES, equal, save_arrays, tiny_dataset
from tests.support.typed_datasets import CASES, typed_dataset


def by_destination(dataset: Dataset) -> Dataset:
    sets = []
    for edges in dataset.edge_sets:
        source, target = (dataset.nodes_of(edges.relation[end]).num_nodes for end in (0, 2))
        sets.append(replace(edges, topology=ops.build_csc(edges.edge_index, target, source)))
    return replace(dataset, edge_sets=tuple(sets))


def arrays(edges: EdgeSet) -> list[torch.Tensor]:
    csc = edges.csc
    assert csc is not None
    return [csc.indptr, csc.indices, csc.explicit_edge_ids()]


@pytest.mark.parametrize("case", [None, *CASES[:5]])
def test_a_folder_gives_back_what_was_written(tmp_path: Path, case: tuple | None) -> None:
    dataset = tiny_dataset() if case is None else typed_dataset(*case)
    wanted = by_destination(dataset)
    found = read_folder(write_folder(wanted, tmp_path / "csc"))
    assert verify_folder(tmp_path / "csc") > 0
    assert (found.num_nodes, found.num_edges) == (dataset.num_nodes, dataset.num_edges)
    for before, listed, after in zip(wanted.edge_sets, dataset.edge_sets, found.edge_sets, strict=True):
        assert isinstance(after.csc, MappedEdges)
        assert all(equal(*one) for one in zip(arrays(before), arrays(after), strict=True))
        assert torch.equal(after.edge_index, listed.edge_index.long())
        held = found.read_topology().edges_of(after.relation)
        assert not isinstance(held.csc, MappedEdges)
        assert all(equal(*one) for one in zip(arrays(held), arrays(after), strict=True))
    size = sum(one.csc.nbytes for one in found.edge_sets if isinstance(one.csc, MappedEdges))
    if size:
        assert found.read_topology(size - 1) is found


def test_some_edges_are_those_of_the_list() -> None:
    dataset = tiny_dataset()
    edges, whole = by_destination(dataset).edges, dataset.edge_index
    for begin in range(0, EDGES + 1, 7):
        for end in (begin, min(begin + 7, EDGES), EDGES):
            found, first = edges.some(range(begin, end)), dataset.edges.some(range(begin, end))
            assert torch.equal(torch.stack(found[:2]), whole[:, found.edge.long()])
            assert torch.equal(torch.stack(first[:2]), whole[:, begin:end])
            assert first.edge.tolist() == list(range(begin, end))
    assert sorted(edges.some(range(EDGES)).edge.tolist()) == list(range(EDGES))


def test_a_folder_made_by_hand(tmp_path: Path) -> None:
    indptr, indices = np.array([0, 2, 2, 3]), np.array([2, 2, 0], np.int32)
    folder = save_arrays(tmp_path / "hand", **{"csc/indptr": indptr, "csc/indices": indices})
    dataset = load_dataset(folder)
    assert (dataset.num_nodes, dataset.num_edges) == (3, 3)
    assert dataset.edge_index.tolist() == [[2, 2, 0], [0, 0, 2]]
    save_arrays(folder, **{"csc/edge_ids": np.array([1, 2, 0], np.uint8)})
    assert load_dataset(folder).edge_index.tolist() == [[0, 2, 2], [2, 0, 0]]


def test_a_typed_folder_made_by_hand(tmp_path: Path) -> None:
    folder = tmp_path / "csc" / "a__to__b"
    save_arrays(folder, indptr=np.array([0, 1, 3]), indices=np.array([4, 0, 1]))
    dataset = read_folder(tmp_path)
    assert {one.name: one.num_nodes for one in dataset.node_sets} == {"a": 5, "b": 2}
    assert dataset.edges_of(("a", "to", "b")).edge_index.tolist() == [[4, 0, 1], [0, 1, 1]]


def test_to_pyg_and_back_copies_nothing(tmp_path: Path) -> None:
    for dataset in (tiny_dataset(), typed_dataset(*CASES[0])):
        found = read_folder(write_folder(by_destination(dataset), tmp_path / dataset.name))
        back = as_dataset(found.to_pyg())
        for before, after in zip(found.edge_sets, back.edge_sets, strict=True):
            assert before.topology is after.topology


def put(name: str, **changes: np.ndarray) -> Callable[[Path], None]:
    return lambda folder: np.save(folder / f"{name}.npy", changes["to"])


BASE = {
    "csc/indptr": np.array([0, 2, 2, 3]),
    "csc/indices": np.array([2, 2, 0]),
    "csc/edge_ids": np.array([0, 2, 1]),
}
WRONG = [
    ("csc/indptr", np.array([0, 2, 1, 3]), "indptr: descends to 1 at position 2"),
    ("csc/indptr", np.array([0, 2, 2]), "indptr: goes from 0 to 2, but there are 3 indices"),
    ("csc/indptr", np.array([1, 2, 2, 3]), "indptr: goes from 1 to 3"),
    ("csc/indptr", np.array([0, 2, 2, 3], np.int32), r"indptr: is int32 \[4\]; store int64"),
    ("csc/indices", np.array([2, 3, 0]), r"indices: node id 3 at position 1 is outside \[0, 3\)"),
    ("csc/indices", np.array([2, 2, -1]), "indices: node id -1 at position 2"),
    ("csc/indices", np.array([2.0, 2, 0]), "indices: dtype is float64"),
    ("csc/indices", None, "indices: .*put the source of each edge there"),
    ("csc/edge_ids", np.array([0, 3, 1]), "edge_ids: edge id 3 at position 1"),
    ("csc/edge_ids", np.array([2, 0, 1]), "edge_ids: does not ascend at position 1"),
    ("csc/edge_ids", np.array([0, 2]), "edge_ids: has 2 entries for 3 edges"),
    ("x", np.zeros((4, 1), np.float32), r"x: shape is \[4, 1\], expected 3 rows"),
    ("edge_index", np.array([[0], [1]]), "csc/indptr.npy|edge_index.npy is there too; remove one"),
    ("csc/indtpr", np.array([0]), None),
]


@pytest.mark.parametrize(("array", "values", "said"), WRONG)
def test_what_is_wrong_is_named(
    tmp_path: Path, array: str, values: np.ndarray | None, said: str | None
) -> None:
    save_arrays(tmp_path, **{**BASE, array: values} if values is not None else BASE)
    if values is None:
        (tmp_path / f"{array}.npy").unlink()
    if said is None:
        with pytest.warns(UserWarning, match="is not read"):
            read_folder(tmp_path)
        return
    with pytest.raises(DatasetError, match=said):
        read_folder(tmp_path)


def test_checks_look_at_every_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry that is wrong is found in the first, a middle and the last piece."""
    monkeypatch.setattr("pyg_batchgnn.data.csc._PIECE", 4)
    good = by_destination(tiny_dataset()).edges.csc
    assert good is not None
    assert good.edge_ids is not None
    whole = {
        "csc/indptr": good.indptr.numpy(),
        "csc/indices": good.indices.numpy(),
        "csc/edge_ids": good.edge_ids.numpy(),
    }
    read_folder(save_arrays(tmp_path / "good", **whole))
    for array, places in (
        ("csc/indices", (0, 30, 59)),
        ("csc/edge_ids", (0, 30, 59)),
        ("csc/indptr", (5, 9)),
    ):
        for place in places:
            wrong = whole[array].copy()
            wrong[place] = wrong[place - 1] - 1 if array == "csc/indptr" else 1000
            folder = save_arrays(tmp_path / f"{array[4:]}{place}", **{**whole, array: wrong})
            open_folder(folder)
            with pytest.raises(DatasetError, match=f"position {place}"):
                read_folder(folder)


def test_a_list_that_does_not_fit_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = by_destination(tiny_dataset())
    monkeypatch.setattr("pyg_batchgnn.data.dataset._LIST_BYTES", 1 << 50)
    with pytest.raises(DatasetError, match=r"a list of 60 edges by id takes .* and .* are free; take what"):
        _ = dataset.edge_index


def test_a_file_that_shrinks_while_it_is_read_is_named(tmp_path: Path) -> None:
    dataset = read_folder(write_folder(by_destination(tiny_dataset()), tmp_path / "csc"))
    file = tmp_path / "csc" / "csc" / "indices.npy"
    with file.open("r+b") as stream:
        stream.truncate(file.stat().st_size - 4 * NODES)
    with pytest.raises(DatasetError, match=r"indices\.npy: indices: ends 20 elements before"):
        dataset.read_topology()
