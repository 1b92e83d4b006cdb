"""Pieces of all nodes: every node once, in order, within the budget where a node is."""

from __future__ import annotations

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from pyg_batchgnn.cache.cuts import OwnedTargets, PieceLimits, cut_pieces
from pyg_batchgnn.ops import InEdges, OwnedEdges

RELATIONS = 3


@given(
    degrees=st.lists(st.lists(st.integers(0, 6), max_size=30), min_size=RELATIONS, max_size=RELATIONS),
    budget=st.integers(1, 4000),
    source=st.lists(st.integers(0, 300), min_size=RELATIONS, max_size=RELATIONS),
    result=st.sampled_from([0, 30]),
    seed=st.integers(0, 9),
)
@example(degrees=[[0, 1, 0, 0, 2], [], []], budget=1, source=[100, 1, 1], result=0, seed=0)
def test_pieces(degrees: list[list[int]], budget: int, source: list[int], result: int, seed: int) -> None:
    """Two relations lead to type 0 and one to type 1. The last example's budget is smaller than one
    edge and its source."""
    random = torch.Generator().manual_seed(seed)
    nodes = max(map(len, degrees))
    counts = [nodes, nodes, len(degrees[2])]
    edges = []
    for count, listed in zip(counts, degrees, strict=True):
        indptr = torch.tensor([0, *listed, *[0] * (count - len(listed))]).cumsum(0)
        indices = torch.randint(max(nodes, 1), (int(indptr[-1]),), generator=random)
        edges.append(OwnedEdges(InEdges(indptr, indices), torch.arange(count), 0, nodes, indices.numel()))
    targets = [OwnedTargets(0, edges[:2], [0, 1]), OwnedTargets(1, edges[2:], [0])]
    limits = PieceLimits(budget, dict(enumerate(source[:2]))).with_results({1: result})
    cuts = list(cut_pieces(targets, limits, {0: nodes, 1: nodes}))
    assert [row for cut in cuts for row in cut[0]] == list(range(nodes))
    assert [row for cut in cuts for row in cut[1]] == list(range(counts[2]))
    for cut in cuts:
        read = [edges[0].in_edges.sources(cut[0]), edges[2].in_edges.sources(cut[1])]
        other = edges[1].in_edges.sources(cut[0])
        distinct = {0: torch.cat(read).unique().numel(), 1: other.unique().numel()}
        count = sum(one.numel() for one in read) + other.numel()
        alone = sum(map(len, cut.values())) == 1
        assert alone or count <= 1 or limits.bytes(distinct, count) <= limits.budget
        assert alone or len(cut[1]) * result <= budget // 2


def test_types_share_a_piece() -> None:
    edges = [
        OwnedEdges(InEdges(torch.arange(n + 1), torch.zeros(n).long()), torch.arange(n), 0, 9, n)
        for n in (4, 9)
    ]
    targets = [OwnedTargets(0, edges[:1], [0]), OwnedTargets(1, edges[1:], [0])]
    cuts = list(cut_pieces(targets, PieceLimits(48 * 6), {0: 4}))
    assert cuts == [
        {0: range(4), 1: range(2)},
        {0: range(4, 4), 1: range(2, 8)},
        {0: range(4, 4), 1: range(8, 9)},
    ]
