"""Passes over all nodes: every node once, its sources first, within the budget."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from pyg_batchgnn.cache import AllNodes
from pyg_batchgnn.cache.pieces import Renumbered
from tests.support.partitioned_graphs import Case, whole
from tests.support.reference_aggregates import with_loops

PLAIN = ("node", "to", "node")


@given(
    sources=st.lists(st.lists(st.integers(0, 19), max_size=30), min_size=1, max_size=3),
    begin=st.integers(0, 20),
    count=st.integers(0, 20),
)
def test_targets_are_numbered_first(sources: list[list[int]], begin: int, count: int) -> None:
    targets = range(min(begin, 20), min(begin + count, 20))
    found = Renumbered.of([torch.tensor(one, dtype=torch.int32) for one in sources], targets, 20)
    ids = found.ids[found.order]
    assert found.ids.tolist() == sorted({*targets}.union(*sources))
    assert ids[: len(targets)].tolist() == list(targets)
    assert sorted(ids.tolist()) == found.ids.tolist()
    assert [ids[one].tolist() for one in found.indices] == sources


@pytest.mark.parametrize("budget", [2_000, 20_000, None])
def test_pieces_have_every_edge_once(budget: int | None) -> None:
    data = with_loops(whole(Case("random", nodes=120, edges=900)))
    nodes, seen = AllNodes(data, memory_budget=budget), 0
    edges = set()
    for piece in nodes.pieces(nodes.features, [PLAIN], {"node": 64}, "features"):
        targets, rows, in_edges = piece.targets["node"], piece.nodes["node"], piece.edges[PLAIN]
        assert targets.start == seen
        assert budget is None or len(targets) <= max(1, budget // 2 // 64)
        assert budget is None or in_edges.num_edges <= max(1, budget // 2 // 48) or len(targets) == 1
        seen = targets.stop
        ids = torch.arange(120) if rows.ids is None else rows.ids
        to = torch.repeat_interleave(ids[: len(targets)], in_edges.degrees)
        edges |= set(zip(ids[in_edges.indices.long()].tolist(), to.tolist(), strict=True))
        assert torch.equal(rows.table if rows.order is None else rows.table[rows.order], data.x[ids])
    assert seen == 120
    assert edges == set(zip(*data.edge_index.tolist(), strict=True))


@pytest.mark.parametrize("with_loops_too", [True, False])
def test_degrees_are_those_of_the_whole_graph(with_loops_too: bool) -> None:
    data = with_loops(whole(Case("random", nodes=50, edges=300)))
    source, target = data.edge_index
    kept = target if with_loops_too else target[source != target]
    expected = torch.bincount(kept, minlength=50)
    degrees = AllNodes(data).degrees(PLAIN, with_loops_too)
    assert torch.equal(degrees.of(None).long(), expected)
    ids = torch.tensor([7, 0, 49, 7])
    assert torch.equal(degrees.of(ids).long(), expected[ids])


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (None, ValueError, "there are no features x"),
        (torch.zeros(4, 2, dtype=torch.int64), TypeError, "x is torch.int64"),
        (torch.zeros(4), ValueError, r"x must be \[nodes, columns\]"),
        (torch.zeros(3, 2), ValueError, "x has 3 rows for 4 nodes"),
        (torch.zeros(4, 2, requires_grad=True), ValueError, "x requires a gradient"),
    ],
)
def test_features_that_cannot_be_read(x: torch.Tensor | None, error: type[Exception], message: str) -> None:
    data = Data(edge_index=torch.tensor([[0], [1]]), num_nodes=4)
    if x is not None:
        data.x = x
    with pytest.raises(error, match=message):
        AllNodes(data)
