"""The laws of weighted and temporal picks, by chi-square."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from pyg_batchgnn.data import HOMOGENEOUS
from pyg_batchgnn.sample import MacrobatchSampler, Replacement, SamplingPlan, Seeds, TemporalStrategy
from pyg_batchgnn.store import CscGraph, TimeOrder, WeightSums
from tests.support.chi_square import Floats, Ints, assert_uniform, p_of_cells, rejected

HUBS = 4000
WEIGHTS = np.array([4.0, 0.0, 1.0, 2.5, 0.5, 1.0])
SKEWED = np.array([1e6, 1.0, 3.0, 2.0])  # most draws hit the first again: the second pass is needed


def hubs(degree: int) -> CscGraph:
    """Returns a graph of HUBS nodes with `degree` in-edges each; edge ids count up by hub."""
    indptr = torch.arange(HUBS + 1) * degree
    sources = (torch.arange(HUBS * degree) % degree).int()
    return CscGraph.from_csc(indptr, sources)


def picks(sampler: MacrobatchSampler, degree: int, rounds: int, time: int | None = None) -> Ints:
    """Positions picked by all hubs, [rounds * HUBS, k]."""
    nodes = torch.arange(HUBS)
    times = None if time is None else torch.full((HUBS,), time)
    seeds = Seeds.of(HOMOGENEOUS, {"node": nodes}, time=times)
    found = []
    for epoch in range(rounds):
        (batch,) = sampler.sample([seeds], epoch)
        assert batch.edge is not None
        found.append(batch.edge.numpy().reshape(HUBS, -1) - np.arange(HUBS)[:, None] * degree)
    return np.concatenate(found)


def weighted(weights: Floats, fanout: int, replacement: Replacement, rounds: int = 4) -> Ints:
    graph = hubs(weights.size)
    sums = WeightSums.of(graph.in_edges, torch.from_numpy(np.tile(weights, HUBS)))
    sampler = MacrobatchSampler(graph, SamplingPlan((fanout,), replacement), seed=3, weights=[sums])
    return picks(sampler, weights.size, rounds)


def law_of_successive_draws(weights: Floats, fanout: int) -> dict[tuple[int, ...], float]:
    """The probability of each sequence of different picks."""
    law = {}
    for order in itertools.permutations(np.flatnonzero(weights), fanout):
        chance, left = 1.0, weights.sum()
        for place in order:
            chance *= weights[place] / left
            left -= weights[place]
        law[tuple(map(int, order))] = chance
    return law


def p_of_sequences(found: Ints, law: dict[tuple[int, ...], float]) -> float:
    """The p-value of the sequences of picks; rare ones share the last cell."""
    counts = dict.fromkeys(law, 0)
    for row in map(tuple, found.tolist()):
        counts[row] += 1
    common = [one for one in law if law[one] * len(found) >= 10]
    table = [counts[one] for one in common]
    chances = [law[one] for one in common]
    table[-1] += len(found) - sum(table)
    chances[-1] += 1 - sum(chances)
    return p_of_cells(np.array(table), np.array(chances))


def test_weights_with_replacement() -> None:
    found = weighted(WEIGHTS, 5, Replacement.WITH)
    positive = WEIGHTS > 0
    counts = np.bincount(found.ravel(), minlength=WEIGHTS.size)
    assert counts[~positive].sum() == 0
    assert_uniform(p_of_cells(counts[positive], WEIGHTS[positive] / WEIGHTS.sum()))


@pytest.mark.parametrize(("weights", "fanout"), [(WEIGHTS, 1), (WEIGHTS, 2), (WEIGHTS, 3), (SKEWED, 2)])
def test_weights_without_replacement(weights: Floats, fanout: int) -> None:
    found = weighted(weights, fanout, Replacement.WITHOUT)
    assert_uniform(p_of_sequences(found, law_of_successive_draws(weights, fanout)))


def test_another_law_is_rejected() -> None:
    found = weighted(WEIGHTS, 2, Replacement.WITHOUT)
    other = law_of_successive_draws(np.where(WEIGHTS == 4.0, 3.5, WEIGHTS), 2)
    assert rejected(p_of_sequences(found, other))


@pytest.mark.parametrize("window", [None, 3])
def test_times_are_uniform_among_the_allowed(window: int | None) -> None:
    """Of times 0 to 9, a seed of time 6 allows 0 to 6, or 3 to 6 in a window of 3."""
    graph = hubs(10)
    time = torch.arange(10).flip(0).repeat(HUBS)
    plan = SamplingPlan((2,), time_window=window)
    sampler = MacrobatchSampler(graph, plan, times=[TimeOrder.of(graph.in_edges, time)])
    found = 9 - picks(sampler, 10, 4, time=6)
    low = 0 if window is None else 3
    assert found.min() == low and found.max() == 6
    pairs = [(a, b) for a in range(low, 7) for b in range(a + 1, 7)]
    counts = dict.fromkeys(pairs, 0)
    for a, b in np.sort(found, axis=1).tolist():
        counts[a, b] += 1
    assert_uniform(p_of_cells(np.array(list(counts.values())), np.full(len(pairs), 1 / len(pairs))))


def test_the_last_are_the_latest() -> None:
    graph = hubs(10)
    time = torch.arange(10).flip(0).repeat(HUBS)
    plan = SamplingPlan((3,), temporal=TemporalStrategy.LAST)
    sampler = MacrobatchSampler(graph, plan, times=[TimeOrder.of(graph.in_edges, time)])
    assert (9 - picks(sampler, 10, 1, time=6) == [4, 5, 6]).all()


def test_weights_within_a_window() -> None:
    """Weights lie before the window; they have no part in the draw."""
    graph = hubs(WEIGHTS.size)
    order = TimeOrder.of(graph.in_edges, torch.arange(WEIGHTS.size).repeat(HUBS))
    sums = WeightSums.of(graph.in_edges, order.by_place(torch.from_numpy(np.tile(WEIGHTS, HUBS))))
    plan = SamplingPlan((1,), Replacement.WITH, time_window=2)
    sampler = MacrobatchSampler(graph, plan, times=[order], weights=[sums])
    counts = np.bincount(picks(sampler, WEIGHTS.size, 4, time=4).ravel(), minlength=WEIGHTS.size)
    assert counts[[0, 1, 5]].sum() == 0
    assert_uniform(p_of_cells(counts[2:5], WEIGHTS[2:5] / WEIGHTS[2:5].sum()))
