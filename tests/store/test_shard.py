"""A shard finds the rows of nodes and edges, and is the same after its arrays were shared."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import TensorAttr

from pyg_batchgnn.data import EDGES, NODES, Group
from pyg_batchgnn.partition import PartitionBook
from pyg_batchgnn.store import EDGE_TYPE, Columns, RowRequest
from pyg_batchgnn.store.dist_features import group_name
from pyg_batchgnn.store.pyg import group_of
from pyg_batchgnn.store.shard import EdgeIndex, shard_of
from tests.support.partitioned_graphs import CASES, part_of


@given(st.lists(st.lists(st.integers(0, 40), unique=True).map(sorted), min_size=1, max_size=8), st.data())
def test_edges_are_found_among_those_of_their_destinations(
    lists: list[list[int]], data: st.DataObject
) -> None:
    indptr = torch.tensor([0, *map(len, lists)]).cumsum(0)
    index = EdgeIndex(indptr, torch.tensor([edge for ids in lists for edge in ids], dtype=torch.int32))
    pairs = [(row, edge) for row, ids in enumerate(lists) for edge in ids]
    order = data.draw(st.lists(st.integers(0, max(len(pairs) - 1, 0)), max_size=9 if pairs else 0))
    wanted = [pairs[at] for at in order]
    node = torch.tensor([row for row, _ in wanted], dtype=torch.int64)
    edge = torch.tensor([edge for _, edge in wanted], dtype=torch.int64)
    assert index.find(RowRequest(node, edge)).tolist() == order


@pytest.mark.parametrize(("row", "edge"), [(0, 5), (1, 2), (2, 2), (1, 9), (0, 0)])
def test_an_edge_of_another_destination_is_refused(row: int, edge: int) -> None:
    index = EdgeIndex(torch.tensor([0, 2, 3, 3]), torch.tensor([2, 4, 5]))
    with pytest.raises(IndexError, match="not among the in-edges"):
        index.find(RowRequest(torch.tensor([row]), torch.tensor([edge])))


@pytest.mark.parametrize("group", [NODES, EDGES])
def test_attributes_of_another_length_are_refused(group: Group) -> None:
    part = part_of(CASES[0], 1, 0)
    part.attributes[group]["bad"] = torch.randn(3, 2)
    with pytest.raises(ValueError, match=r"part 0: \w+ attribute 'bad' has 3 rows, expected one with \d+"):
        shard_of(part, None)


def test_splits_hold_rows_of_the_part() -> None:
    part = part_of(CASES[0], 1, 0)
    part.splits[NODES]["bad"] = torch.tensor([0, part.num_nodes])
    with pytest.raises(IndexError, match="split 'bad' holds"):
        shard_of(part, None)


@pytest.mark.parametrize("edge_attributes", [False, True])
def test_a_shard_is_made_again_from_its_arrays(edge_attributes: bool) -> None:
    part = part_of(CASES[0], 2, 1, edge_attributes=edge_attributes)
    shard = shard_of(part, None)
    again = shard.like({name: array.clone() for name, array in shard.arrays().items()})
    assert torch.equal(again.original[NODES], shard.original[NODES])
    assert again.attributes.keys() == shard.attributes.keys() == {NODES, EDGES}
    for group, tables in shard.attributes.items():
        assert again.attributes[group].keys() == tables.keys()
        assert all(torch.equal(again.attributes[group][name], table) for name, table in tables.items())
    if edge_attributes:
        rows = torch.repeat_interleave(torch.arange(part.num_nodes), part.in_edges.indptr.diff())
        request = RowRequest(rows, part.in_edges.explicit_edge_ids().long())
        assert torch.equal(again.find(EDGES, request), torch.arange(len(request)))


def test_splits_are_masks_and_floats_are_converted() -> None:
    part = part_of(CASES[0], 1, 0)
    shard = shard_of(part, torch.bfloat16)
    assert shard.attributes[NODES]["x"].dtype == torch.bfloat16
    assert shard.attributes[NODES]["y"].dtype == torch.int64
    mask = shard.attributes[NODES]["train_mask"]
    assert torch.equal(mask.nonzero().view(-1), part.split("train"))


def test_one_more_attribute_is_not_copied() -> None:
    shard = shard_of(part_of(CASES[0], 1, 0), None)
    table = torch.zeros(len(shard.original[NODES]), 3)
    more = shard.with_attribute(NODES, "more", table)
    block = more.block(NODES, Columns(["more", "x"], original_ids=True))
    assert block.attributes["more"] is table and block.original is shard.original[NODES]
    assert "more" not in shard.attributes[NODES]


def test_pyg_names_of_groups() -> None:
    names = [group_name(group) for group in (NODES, EDGES)]
    assert names == [None, EDGE_TYPE]
    assert [group_of(TensorAttr(name, "x")) for name in names] == [NODES, EDGES]


def test_requests_are_cut_by_owner() -> None:
    request = RowRequest(torch.tensor([0, 3, 3, 7]), torch.tensor([9, 8, 1, 2]))
    parts = request.split(PartitionBook([0, 2, 2, 5, 8]))
    assert [part.node.tolist() for part in parts] == [[0], [], [1, 1], [2]]
    assert [part.columns[1].tolist() for part in parts] == [[9], [], [8, 1], [2]]
    assert [len(part) for part in RowRequest(torch.tensor([1, 4])).split(PartitionBook([0, 4, 5]))] == [1, 1]
    typed = PartitionBook([0, 2, 4, 7, 8], 2)  # two parts of two types
    own = RowRequest(torch.tensor([2, 3, 7])).split(typed, 1)
    assert [part.node.tolist() for part in own] == [[0, 1], [0]]
