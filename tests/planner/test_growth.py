"""Distinct nodes of several minibatches, from how often nodes were seen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyg_batchgnn.planner.probe import Growth, growth_of


def drawn(seed: int, nodes: int, samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns how likely each node is, and [samples, nodes] in which samples it was."""
    random = np.random.default_rng(seed)
    likely = random.beta(0.3, 2.0, nodes)
    return likely, random.random((samples, nodes)) < likely


@settings(max_examples=15)
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


@settings(max_examples=15)
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
