"""Edges in both directions, and folders whose edges lie by destination."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyg_batchgnn import ops
from pyg_batchgnn.data import (
    Dataset,
    DatasetError,
    EdgeSet,
    NodeSet,
    ParallelEdges,
    Schema,
    as_dataset,
    is_symmetric,
    load_dataset,
    make_undirected,
    open_folder,
    read_folder,
    stored_reverse,
    verify_folder,
    with_reverse_relations,
    write_folder,
)
from pyg_batchgnn.data.csc import MappedEdges
from pyg_batchgnn.data.undirected import undirected_dataset
from tests.support.tiny_datasets import EDGES, NODES, changed, equal, save_arrays, tiny_dataset
from tests.support.typed_datasets import CASES, typed_dataset

pairs = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=40)
types = st.sampled_from([torch.int32, torch.int64])


def edges_of(tensor: torch.Tensor) -> list[tuple[int, ...]]:
    return [tuple(edge) for edge in tensor.T.tolist()]


def index(edges: list[tuple[int, int]], dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor(edges, dtype=dtype).reshape(-1, 2).T


@given(pairs, types)
def test_keep_appends_the_reverse_of_every_edge(edges: list[tuple[int, int]], dtype: torch.dtype) -> None:
    both = make_undirected(index(edges, dtype), 10, ParallelEdges.KEEP)
    assert edges_of(both) == edges + [(b, a) for a, b in edges]
    assert both.dtype == dtype


@given(pairs, types)
def test_merge_leaves_each_pair_once_and_sorted(edges: list[tuple[int, int]], dtype: torch.dtype) -> None:
    both = make_undirected(index(edges, dtype), 10, ParallelEdges.MERGE)
    assert edges_of(both) == sorted(set(edges) | {(b, a) for a, b in edges})
    assert both.dtype == dtype


def test_ids_too_large_for_one_sort_key() -> None:
    big = 2**40
    edges = torch.tensor([[big, 5, big], [5, big, 5]])
    assert edges_of(make_undirected(edges, big + 1, ParallelEdges.MERGE)) == [(5, big), (big, 5)]


@pytest.mark.parametrize(
    ("edge_index", "error", "message"),
    [
        (torch.zeros(2, 3), TypeError, "float32"),
        (torch.zeros(3, 3, dtype=torch.int64), ValueError, r"\[3, 3\]"),
        (torch.tensor([[0], [10]]), ValueError, r"node id 10, outside \[0, 10\)"),
        (torch.tensor([[-1], [2]]), ValueError, "node id -1"),
    ],
)
def test_bad_arguments(edge_index: torch.Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make_undirected(edge_index, 10)


def test_data_set_keeps_its_edge_attributes_beside_the_edges() -> None:
    dataset = changed(tiny_dataset(), {"edges/edge_attr": torch.arange(60.0), "edges/time": torch.arange(60)})
    both = undirected_dataset(dataset, ParallelEdges.KEEP)
    for name, table in dataset.edges.tables.items():
        assert torch.equal(both.edges.tables[name], torch.cat([table, table]))
    assert both.edges.num_rows == 120 and both.nodes is dataset.nodes
    assert "parallel edges: keep" in both.source
    with pytest.raises(DatasetError, match=r"^tiny: edge_attr: "):
        undirected_dataset(dataset, ParallelEdges.MERGE)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12), st.booleans())
def test_a_symmetric_graph_has_the_reverse_of_each_edge_as_often(
    edges: list[tuple[int, int]], mirrored: bool
) -> None:
    edges = edges + [(target, source) for source, target in edges] if mirrored else edges
    wanted = sorted(edges) == sorted((target, source) for source, target in edges)
    edge_index = torch.tensor(edges, dtype=torch.int64).view(-1, 2).t()
    assert is_symmetric(edge_index) is is_symmetric(edge_index.int()) is wanted


def test_every_relation_without_a_reverse_gets_one() -> None:
    edges = torch.tensor([[0, 1, 1], [2, 0, 2]], dtype=torch.int32)
    time = torch.tensor([5, 6, 7])
    sets = (
        EdgeSet(("a", "to", "b"), edges, {"time": time}),
        EdgeSet(("a", "near", "a"), edges[:, :0]),
        EdgeSet(("a", "in", "c"), edges),
        EdgeSet(("c", "rev_in", "a"), edges.flip(0)),
    )
    graph = Dataset("three", (NodeSet("a", 3), NodeSet("b", 3), NodeSet("c", 3)), sets)
    found = with_reverse_relations(graph)
    assert found.edge_sets[:4] == sets
    added = {one.relation: one for one in found.edge_sets[4:]}
    assert list(added) == [("b", "rev_to", "a"), ("a", "rev_near", "a")]
    reverse = added["b", "rev_to", "a"]
    assert torch.equal(reverse.edge_index, edges.flip(0)) and reverse.edge_index.dtype is torch.int32
    assert torch.equal(reverse.tables["time"], time)
    assert with_reverse_relations(found).schema == found.schema
    with pytest.raises(DatasetError, match="homogeneous"):
        with_reverse_relations(Dataset.homogeneous("plain", 3, edges))


def test_a_stored_reverse_is_found_from_both_sides() -> None:
    there, back = ("a", "to", "b"), ("b", "rev_to", "a")
    alone, elsewhere = ("a", "rev_of", "b"), ("a", "rev_to", "b")
    schema = Schema(("a", "b"), (there, back, alone, elsewhere))
    assert [stored_reverse(schema, one) for one in schema.relations] == [back, there, None, None]
    odd = Schema(("a", "b"), (alone, ("b", "rev_rev_of", "a")))
    assert [stored_reverse(odd, one) for one in odd.relations] == [*reversed(odd.relations)]


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
]


@pytest.mark.parametrize(("array", "values", "said"), WRONG)
def test_what_is_wrong_is_named(tmp_path: Path, array: str, values: np.ndarray | None, said: str) -> None:
    arrays = {**BASE, array: values}
    save_arrays(tmp_path, **{name: one for name, one in arrays.items() if one is not None})
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
    with pytest.raises(DatasetError, match=r"indices\.npy: indices: ends before element 60, .*; copy"):
        dataset.read_topology()
