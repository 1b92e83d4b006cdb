"""Minibatches predicted from degrees are nearly those of a random graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pyg_batchgnn.planner import Degrees, TypeRows, Workload, probe_degrees, probe_graph
from pyg_batchgnn.sample import Replacement
from pyg_batchgnn.store import CscGraph


def random_graph(nodes: int) -> tuple[CscGraph, Degrees]:
    """Edges in both directions between stubs that are paired at random."""
    degrees = Degrees.lognormal(nodes, 12.0 * nodes, 1.0)
    assert degrees.edges == pytest.approx(12.0 * nodes, rel=1e-3)
    draw = np.random.default_rng(0)
    degree = draw.choice(degrees.degree, nodes, p=degrees.nodes / nodes).round().astype(int)
    stubs = draw.permutation(np.repeat(np.arange(nodes), degree))
    stubs = stubs[: len(stubs) // 2 * 2].reshape(2, -1)
    edges = torch.from_numpy(np.concatenate([stubs, stubs[::-1]], 1).copy())
    values, counts = np.unique(degree, return_counts=True)
    return CscGraph.from_edge_index(edges, nodes), Degrees(values.astype(float), counts.astype(float))


@pytest.mark.parametrize("replacement", list(Replacement))
def test_a_random_graph(replacement: Replacement) -> None:
    nodes, ranks = 30_000, 4
    graph, degrees = random_graph(nodes)
    training = torch.arange(0, nodes, 3)
    work = Workload(
        "w", (TypeRows("node", nodes, 64, 8),), graph.num_edges, training.numel(), (8, 4, 3), batch_size=128
    )
    owner = torch.randint(ranks, (nodes,), generator=torch.Generator().manual_seed(0))
    seen = probe_graph(work, graph.typed, training, [owner], ranks=ranks, replacement=replacement, threads=1)
    predicted = probe_degrees(work, degrees, ranks, replacement=replacement)
    for one, other in ((predicted.full, seen.full), (predicted.inner, seen.inner)):
        assert one.nodes == pytest.approx(other.nodes, rel=0.1)
        assert one.edges == pytest.approx(other.edges, rel=0.1)
        assert sum(one.asked[1:]) == pytest.approx(sum(other.asked[1:]), rel=0.12)
        for together in (1, 4, 16):
            wanted = other.remote.distinct(together)
            assert one.remote.distinct(together) == pytest.approx(wanted, rel=0.12)
    assert predicted.full.remote.missed(4, [nodes / 8]) == pytest.approx(
        seen.full.remote.missed(4, [nodes / 8]), rel=0.15
    )
