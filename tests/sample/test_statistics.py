"""Every neighbour, and every pair of neighbours or picks, is as likely as every other."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from pyg_batchgnn.data import HOMOGENEOUS
from pyg_batchgnn.sample import MacrobatchSampler, Replacement, SamplingPlan, Seeds
from pyg_batchgnn.store import CscGraph, TimeOrder, WeightSums
from tests.support.chi_square import (
    Floats,
    Ints,
    assert_uniform,
    p_of_cells,
    p_of_joint,
    p_of_positions,
    p_of_unordered_pairs,
)
from tests.support.tiers import ALL, all_only, in_all

WITH, WITHOUT = Replacement.WITH, Replacement.WITHOUT
FANOUTS = [1, 10, 200]
WITH_CASES = [
    (d, k) for k in FANOUTS for d in sorted({1, 2, max(k - 1, 1), k, k + 1, 100, 40_000, 1_000_000})
]
#: Degrees near the fanout decide; `make test-all` has the long lists, too.
FEWER = {(d, k) for d, k in WITH_CASES if d in (k - 1, k, k + 1, 100) or (d, k) == (1_000_000, 10)}


def tiered(cases: list[tuple[int, int]]) -> list[Any]:
    return [case if case in FEWER else pytest.param(*case, marks=all_only) for case in cases]


#: The cases in which sampling without replacement has a choice.
CHOICES = [(d, k) for d, k in WITH_CASES if d > k]


def draws_for(fanout: int) -> int:
    """Returns the number of draws: about 200,000 picks, or 4,000 draws. `make test` has at most
    50,000 draws: fewer would not tell an algorithm that is off by one."""
    draws = max(200_000 // fanout, 4_000)
    return draws if ALL else min(draws, 50_000)


def partitions(degree: int, cells: int) -> list[Ints]:
    position = np.arange(degree)
    if degree <= cells:
        return [position]
    return [position * cells // degree, position % cells]


def pair_of_each_draw(picks: Ints, seed: int) -> Ints:
    columns = np.random.default_rng(seed).random(picks.shape).argsort(axis=1)[:, :2]
    return np.take_along_axis(picks, columns, axis=1)


MARKS = 8192  # isolated nodes, one of which in a seed list makes it a minibatch of its own


@dataclass(frozen=True)
class Hubs:
    degree: int
    count: int

    def graph(self) -> CscGraph:
        num_nodes = self.count + MARKS + self.degree
        indptr = torch.full((num_nodes + 1,), self.count * self.degree)
        indptr[: self.count] = torch.arange(self.count) * self.degree
        sources = torch.arange(self.count + MARKS, num_nodes, dtype=torch.int32)
        return CscGraph.from_csc(indptr, sources.repeat(self.count))

    def seeds(self, mark: int) -> torch.Tensor:
        """All hubs, closed by one isolated node: [count + 1]."""
        return torch.cat([torch.arange(self.count), torch.tensor([self.count + mark])])


def picks_table(
    hubs: Hubs, fanout: int, replacement: Replacement, seeds: range, epochs: range, marks: range
) -> Ints:
    graph = hubs.graph()
    plan = SamplingPlan((fanout,), replacement)
    seed_lists = [hubs.seeds(mark) for mark in marks]
    edges = []
    for seed in seeds:
        sampler = MacrobatchSampler(graph, plan, seed=seed)
        for epoch in epochs:
            for batch in sampler.sample(seed_lists, epoch):
                assert batch.edge is not None
                edges.append(batch.edge)
    shape = (len(seeds), len(epochs), len(marks), hubs.count, -1)
    table: Ints = torch.stack(edges).numpy().reshape(shape) - np.arange(hubs.count)[:, None] * hubs.degree
    assert table.min() >= 0 and table.max() < hubs.degree
    return table


def draw_picks(degree: int, fanout: int, replacement: Replacement, draws: int) -> Ints:
    """Returns about `draws` draws of a node's neighbours [draws, picks], over all key parts."""
    count = 4 if degree > 100_000 else 16
    marks = max(1, round(draws / (count * 5 * 4)))
    table = picks_table(Hubs(degree, count), fanout, replacement, range(100, 105), range(4), range(marks))
    return table.reshape(-1, table.shape[-1])


@pytest.mark.parametrize(("degree", "fanout"), tiered(WITH_CASES))
def test_with_replacement(degree: int, fanout: int) -> None:
    picks = draw_picks(degree, fanout, WITH, draws_for(fanout))
    assert picks.shape[1] == fanout
    if degree == 1:
        assert not picks.any()
        return
    for cell in partitions(degree, 1000):
        assert_uniform(p_of_positions(picks, degree, cell, without=False))
    for cell in partitions(degree, 20):
        if fanout > 1:
            pairs = cell[pair_of_each_draw(picks, seed=1)]
            assert_uniform(p_of_joint(pairs[:, 0], pairs[:, 1], np.bincount(cell)))
            neighbours = cell[picks[:, : fanout - fanout % 2]].reshape(-1, 2)  # picks t and t + 1
            assert_uniform(p_of_joint(neighbours[:, 0], neighbours[:, 1], np.bincount(cell)))


@pytest.mark.parametrize(("degree", "fanout"), tiered(CHOICES))
def test_without_replacement(degree: int, fanout: int) -> None:
    picks = draw_picks(degree, fanout, WITHOUT, draws_for(fanout))
    ordered = np.sort(picks, axis=1)
    assert picks.shape[1] == fanout and (ordered[:, 1:] > ordered[:, :-1]).all()
    for cell in partitions(degree, 1000):
        assert_uniform(p_of_positions(picks, degree, cell, without=True))
    if fanout > 1:
        pairs = pair_of_each_draw(picks, seed=2)
        for cell in partitions(degree, 20):
            assert_uniform(p_of_unordered_pairs(pairs, degree, cell))


@pytest.mark.parametrize(("degree", "fanout"), [(5, 2), (6, 4), *in_all((5, 3), (9, 8), (10, 5))])
def test_every_subset(degree: int, fanout: int) -> None:
    picks = draw_picks(degree, fanout, WITHOUT, 40_000)
    counts = np.bincount((1 << picks).sum(axis=1), minlength=1 << degree)
    possible = [subset for subset in range(1 << degree) if bin(subset).count("1") == fanout]
    assert counts.sum() == counts[possible].sum()
    assert_uniform(p_of_cells(counts[possible], np.full(len(possible), 1 / len(possible))))


@pytest.mark.parametrize(("degree", "fanout"), [(40_000, 200), *in_all((1_000_000, 1000))])
def test_last_neighbours_of_a_long_list(degree: int, fanout: int) -> None:
    """Floyd's algorithm treats the last k positions apart; they must be picked as often."""
    picks = draw_picks(degree, fanout, WITHOUT, 8_000)
    cell = (np.arange(degree) >= degree - fanout).astype(np.int64)
    assert_uniform(p_of_positions(picks, degree, cell, without=True))


# Samplers with the faults that have been published. They give positions, [draws, fanout].


# Picks that differ in any part of the key have nothing to do with each other. Every test counts
# pairs of picks, one under each of two keys, in a table of 8 x 8 or 10 x 10 cells, which must be
# uniform. Pairs are disjoint: no pick is counted twice.

SEEDS, EPOCHS, FEW_MARKS, FEW_HUBS = range(4, 12), range(8), range(16), 8
EIGHT, TEN = np.ones(8, dtype=np.int64), np.ones(10, dtype=np.int64)


def halves(table: Ints, axis: int) -> tuple[Ints, Ints]:
    """Returns entries 0, 2, 4, ... and 1, 3, 5, ... along an axis: disjoint pairs of keys."""
    return table.take(range(0, table.shape[axis], 2), axis), table.take(range(1, table.shape[axis], 2), axis)


@pytest.mark.parametrize("degree", [8, 5000])
def test_parts_of_the_key(degree: int) -> None:
    """Seeds, epochs, minibatches, nodes and picks."""
    table = picks_table(Hubs(degree, FEW_HUBS), 4, Replacement.WITH, SEEDS, EPOCHS, FEW_MARKS)
    for axis in range(5):
        assert_uniform(p_of_joint(*halves(table * 8 // degree, axis), EIGHT))
        assert_uniform(p_of_joint(*halves(table % 8, axis), EIGHT))


def test_seed_and_epoch_are_not_interchangeable() -> None:
    """(seed a, epoch b) against (seed b, epoch a), for all a < b."""
    table = picks_table(Hubs(10, FEW_HUBS), 4, Replacement.WITH, range(10), range(10), FEW_MARKS)
    low, high = np.triu_indices(10, k=1)
    assert_uniform(p_of_joint(table[low, high], table[high, low], TEN))


def one_hop(plan: SamplingPlan, seed_lists: list[list[int]], node: int) -> Ints:
    hubs = Hubs(10, FEW_HUBS)
    sampler = MacrobatchSampler(hubs.graph(), plan, seed=21)
    batches = sampler.sample([torch.tensor(seeds) for seeds in seed_lists], epoch=3)
    rows = []
    for batch, seeds in zip(batches, seed_lists, strict=True):
        start, end = batch.indptr[seeds.index(node) :][:2].tolist()
        assert batch.edge is not None
        rows.append(batch.edge[start:end] - node * hubs.degree)
    return torch.stack(rows).numpy()


@pytest.mark.parametrize(
    ("one", "other"),
    [([0, 1], [1, 0]), ([0], [0, 0]), ([0], [0, 1]), ([0, 1, 1], [0, 0, 1])],
    ids=["order", "repetition", "prefix", "multiset"],
)
def test_seed_lists_that_are_nearly_the_same(one: list[int], other: list[int]) -> None:
    """Draws a node in two minibatches with nearly the same seeds, in many such pairs."""
    plan = SamplingPlan((2,), Replacement.WITH)
    marks = range(FEW_HUBS, FEW_HUBS + (4000 if ALL else 1500))
    first = one_hop(plan, [[mark, *one] for mark in marks], 0)
    second = one_hop(plan, [[mark, *other] for mark in marks], 0)
    assert_uniform(p_of_joint(first, second, TEN))


def layered_graph(width: int, layers: int) -> CscGraph:
    """Every node of a layer has in-edges from all nodes of the next layer, in order."""
    count = width * (layers - 1)
    indptr = torch.cat([torch.arange(count + 1) * width, torch.full((width,), count * width)])
    indices = (torch.arange(count) // width * width)[:, None] + width + torch.arange(width)
    return CscGraph.from_csc(indptr, indices.reshape(-1))


EPOCHS_OF_HOPS = 1000 if ALL else 300


@pytest.mark.parametrize("replacement", list(Replacement))
def test_hops(replacement: Replacement) -> None:
    """A walk of 5 hops: the pick at one hop against the picks at every later one."""
    sampler = MacrobatchSampler(layered_graph(8, 6), SamplingPlan((1,) * 5, replacement), seed=2)
    seed_lists = [torch.tensor([node]) for node in range(8)]
    edges = [batch.edge for epoch in range(EPOCHS_OF_HOPS) for batch in sampler.sample(seed_lists, epoch)]
    picks = torch.stack([edge for edge in edges if edge is not None]).numpy() % 8
    assert picks.shape == (8 * EPOCHS_OF_HOPS, 5)
    for hop in range(5):
        for later in range(hop + 1, 5):
            assert_uniform(p_of_joint(picks[:, hop], picks[:, later], EIGHT))


HUBS = 4000
WEIGHTS = np.array([4.0, 0.0, 1.0, 2.5, 0.5, 1.0])
SKEWED = np.array([1e6, 1.0, 3.0, 2.0])  # most draws hit the first again: the second pass is needed


def picks(sampler: MacrobatchSampler, degree: int, rounds: int, time: int | None = None) -> Ints:
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
    graph = Hubs(weights.size, HUBS).graph()
    sums = WeightSums.of(graph.in_edges, torch.from_numpy(np.tile(weights, HUBS)))
    sampler = MacrobatchSampler(graph, SamplingPlan((fanout,), replacement), seed=3, weights=[sums])
    return picks(sampler, weights.size, rounds)


def law_of_successive_draws(weights: Floats, fanout: int) -> dict[tuple[int, ...], float]:
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


@pytest.mark.parametrize("window", [None, 3])
def test_times_are_uniform_among_the_allowed(window: int | None) -> None:
    """Of times 0 to 9, a seed of time 6 allows 0 to 6, or 3 to 6 in a window of 3."""
    graph = Hubs(10, HUBS).graph()
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


def test_weights_within_a_window() -> None:
    """Weights lie before the window; they have no part in the draw."""
    graph = Hubs(WEIGHTS.size, HUBS).graph()
    order = TimeOrder.of(graph.in_edges, torch.arange(WEIGHTS.size).repeat(HUBS))
    sums = WeightSums.of(graph.in_edges, order.by_place(torch.from_numpy(np.tile(WEIGHTS, HUBS))))
    plan = SamplingPlan((1,), Replacement.WITH, time_window=2)
    sampler = MacrobatchSampler(graph, plan, times=[order], weights=[sums])
    counts = np.bincount(picks(sampler, WEIGHTS.size, 4, time=4).ravel(), minlength=WEIGHTS.size)
    assert counts[[0, 1, 5]].sum() == 0
    assert_uniform(p_of_cells(counts[2:5], WEIGHTS[2:5] / WEIGHTS[2:5].sum()))
