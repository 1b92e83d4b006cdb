"""make_undirected."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyg_batchgnn.data import (
    Dataset,
    DatasetError,
    EdgeSet,
    NodeSet,
    ParallelEdges,
    Schema,
    is_symmetric,
    make_undirected,
    stored_reverse,
    with_reverse_relations,
)
from pyg_batchgnn.data.undirected import undirected_dataset
from tests.support.tiny_datasets import changed, tiny_dataset

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


# Reversed #########################################################################################


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
