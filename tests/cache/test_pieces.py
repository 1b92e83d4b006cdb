"""Pieces of the aggregation cache: every node once, in order, within the budget where a node is."""

from __future__ import annotations

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from pyg_batchgnn.cache.pieces import PieceLimits, cut_pieces
from pyg_batchgnn.ops import InEdges, OwnedEdges


@given(
    degrees=st.lists(st.integers(0, 6), max_size=30),
    budget=st.integers(1, 4000),
    source=st.integers(0, 300),
    seed=st.integers(0, 9),
)
@example(degrees=[0, 1, 0, 0, 2], budget=1, source=100, seed=0)  # smaller than one edge and its source
def test_pieces(degrees: list[int], budget: int, source: int, seed: int) -> None:
    nodes, limits = len(degrees), PieceLimits(budget, source)
    indptr = torch.tensor([0, *degrees]).cumsum(0)
    random = torch.Generator().manual_seed(seed)
    indices = torch.randint(max(nodes, 1), (int(indptr[-1]),), generator=random)
    own = OwnedEdges(InEdges(indptr, indices), torch.arange(nodes), 0, nodes, indices.numel())
    pieces = list(cut_pieces(own, limits))
    assert [row for rows in pieces for row in rows] == list(range(nodes))
    for rows in pieces:
        edges = own.in_edges.sources(rows)
        small = len(rows) == 1 or edges.numel() <= 1
        assert small or limits.bytes(edges.unique().numel(), edges.numel()) <= budget
