"""Distinct nodes of several minibatches: of sampled ones, and from degrees."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyg_batchgnn.planner import Degrees, TypeRows, Workload, probe_degrees, probe_graph
from pyg_batchgnn.planner.probe import Growth, growth_of
from pyg_batchgnn.sample import Replacement
from pyg_batchgnn.store import CscGraph
from tests.support.tiers import examples

# Growth ###########################################################################################


def drawn(seed: int, nodes: int, samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns how likely each node is, and [samples, nodes] in which samples it was."""
    random = np.random.default_rng(seed)
    likely = random.beta(0.3, 2.0, nodes)
    return likely, random.random((samples, nodes)) < likely


@examples(15)
@given(st.integers(0, 1000), st.integers(1, 60), st.integers(1, 12))
def test_any_of_the_samples_have_what_was_counted(seed: int, nodes: int, samples: int) -> None:
    _, seen = drawn(seed, nodes, samples)
    growth = growth_of(seen.sum(0), samples, nodes)
    assert growth.distinct(0) == 0.0
    assert growth.distinct(1) == pytest.approx(seen.sum(1).mean())
    assert growth.distinct(samples) == pytest.approx(seen.any(0).sum())
    if samples > 1:
        pairs = [(seen[a] | seen[b]).sum() for a in range(samples) for b in range(a)]
        assert growth.distinct(2) == pytest.approx(np.mean(pairs))


@examples(15)
@given(st.integers(0, 1000), st.integers(1, 60), st.integers(1, 12))
def test_more_minibatches_never_have_fewer_nodes(seed: int, nodes: int, samples: int) -> None:
    growth = growth_of(drawn(seed, nodes, samples)[1].sum(0), samples, nodes)
    distinct = [growth.distinct(k) for k in range(3 * samples + 2)]
    steps = np.diff(distinct)
    assert (steps >= -1e-6).all() and distinct[-1] <= nodes + 1e-6
    assert (np.diff(steps[samples:]) <= 1e-6).all(), "each adds fewer than the one before"
    for kept in (0.0, nodes / 3, float(nodes)):
        missed = growth.missed(2, kept)
        assert -1e-9 <= missed <= distinct[2] + 1e-9
        assert kept < nodes or missed == pytest.approx(0.0, abs=1e-6)


def test_beyond_the_samples() -> None:
    """A third of the minibatches predicts the distinct nodes of all and a cache's gain."""
    likely, seen = drawn(1, 20_000, 8)
    growth = growth_of(seen.sum(0), 8, 20_000)
    for together in (12, 24):
        wanted = (1 - (1 - likely) ** together).sum()
        assert growth.distinct(together) == pytest.approx(wanted, rel=0.05)
    rest = np.sort(likely)[:-4000]
    assert growth.missed(4, 4000) == pytest.approx((1 - (1 - rest) ** 4).sum(), rel=0.1)


def test_between_whole_numbers() -> None:
    growth = Growth((10.0, 5.0), 40.0)
    assert growth.distinct(1.5) == pytest.approx((growth.distinct(1) + growth.distinct(2)) / 2)


# Degrees ##########################################################################################


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
