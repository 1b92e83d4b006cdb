"""The rows of a rank's own nodes, found by original id."""

from __future__ import annotations

from unittest import mock

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.partition import Part
from pyg_batchgnn.store import CscGraph, OwnRowFinder
from tests.support.reference_partition import book_of, part_in_order

NODES, RANKS = 9, 3


def part_of(owner: Tensor, order: Tensor, rank: int) -> Part:
    """Returns a rank's part of a graph without edges, whose nodes are in any order."""
    graph = CscGraph.from_edge_index(torch.empty(2, 0, dtype=torch.int64), NODES).typed
    return part_in_order(graph, [order], book_of([owner], RANKS), rank)


@given(
    owner=st.lists(st.integers(0, RANKS - 1), min_size=NODES, max_size=NODES).map(torch.tensor),
    shuffled=st.permutations(range(NODES)).map(torch.tensor),
    ascends=st.booleans(),
    asked=st.lists(st.integers(0, NODES - 1), max_size=12),
)
def test_nodes_are_found_in_any_order(
    owner: Tensor, shuffled: Tensor, ascends: bool, asked: list[int]
) -> None:
    before = torch.arange(NODES) if ascends else shuffled
    order = before[torch.argsort(owner[before], stable=True)]
    for rank in range(RANKS):
        part = part_of(owner, order, rank)
        own = part.node.tolist()
        found = OwnRowFinder(part).find(0, torch.tensor(asked, dtype=torch.int64))
        places = [at for at, node in enumerate(asked) if node in own]
        assert found.position.tolist() == places
        assert found.row.tolist() == [own.index(asked[at]) for at in places]
        assert found.missing.tolist() == [at for at, node in enumerate(asked) if node not in own]


def test_a_part_is_looked_through_once() -> None:
    part = part_of(torch.zeros(NODES, dtype=torch.int64), torch.arange(NODES).flip(0), 0)
    nodes = OwnRowFinder(part)
    with mock.patch("pyg_batchgnn.ops.is_ascending", wraps=ops.is_ascending) as look:
        for node in range(NODES):
            assert nodes.find(0, torch.tensor([node])).row.tolist() == [NODES - 1 - node]
    assert look.call_count == 1
