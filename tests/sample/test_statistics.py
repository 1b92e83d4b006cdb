"""Every neighbour, and every pair of neighbours, is as likely as every other."""

from __future__ import annotations

import numpy as np
import pytest

from pyg_batchgnn.sample import Replacement
from tests.support.biased_samplers import (
    a_run_of_neighbours,
    floyd_off_by_one,
    modulo_of_16_bits,
    taking_turns,
)
from tests.support.chi_square import (
    Ints,
    assert_uniform,
    p_of_cells,
    p_of_joint,
    p_of_positions,
    p_of_unordered_pairs,
    rejected,
)
from tests.support.neighbour_draws import draw_picks

WITH, WITHOUT = Replacement.WITH, Replacement.WITHOUT
FANOUTS = [1, 10, 200]


def degrees(fanout: int) -> list[int]:
    return sorted({1, 2, max(fanout - 1, 1), fanout, fanout + 1, 100, 40_000, 1_000_000})


WITH_CASES = [(d, k) for k in FANOUTS for d in degrees(k)]
CHOICES = [
    (d, k) for d, k in WITH_CASES if d > k
]  # the cases in which sampling without replacement has a choice


def draws_for(fanout: int) -> int:
    """Returns the number of draws: about 200,000 picks, or 4,000 draws."""
    return max(200_000 // fanout, 4_000)


def partitions(degree: int, cells: int) -> list[Ints]:
    """Returns two divisions of positions into cells: by their high and by their low digits."""
    position = np.arange(degree)
    if degree <= cells:
        return [position]
    return [position * cells // degree, position % cells]


def pair_of_each_draw(picks: Ints, seed: int) -> Ints:
    """Two different columns of every row, [draws, 2]."""
    columns = np.random.default_rng(seed).random(picks.shape).argsort(axis=1)[:, :2]
    return np.take_along_axis(picks, columns, axis=1)


@pytest.mark.parametrize(("degree", "fanout"), WITH_CASES)
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


@pytest.mark.parametrize(("degree", "fanout"), CHOICES)
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


@pytest.mark.parametrize(("degree", "fanout"), [(d, k) for d, k in WITH_CASES if d <= k])
def test_without_choice(degree: int, fanout: int) -> None:
    """All neighbours in the order of the adjacency list."""
    picks = draw_picks(degree, fanout, WITHOUT, 500)
    assert (picks == np.arange(degree)).all()


@pytest.mark.parametrize(("degree", "fanout"), [(5, 2), (11, 10), (100, 10)])
def test_every_pair_of_neighbours(degree: int, fanout: int) -> None:
    """The full table of pairs, where it is small enough."""
    picks = draw_picks(degree, fanout, WITHOUT, 60_000)
    assert_uniform(p_of_unordered_pairs(pair_of_each_draw(picks, seed=3), degree, np.arange(degree)))
    picks = draw_picks(degree, fanout, WITH, 60_000)
    pairs = pair_of_each_draw(picks, seed=4)
    assert_uniform(p_of_joint(pairs[:, 0], pairs[:, 1], np.ones(degree, dtype=np.int64)))


@pytest.mark.parametrize(("degree", "fanout"), [(5, 2), (5, 3), (6, 4), (9, 8), (10, 5)])
def test_every_subset(degree: int, fanout: int) -> None:
    """All subsets of a small adjacency list are equally likely."""
    picks = draw_picks(degree, fanout, WITHOUT, 40_000)
    counts = np.bincount((1 << picks).sum(axis=1), minlength=1 << degree)
    possible = [subset for subset in range(1 << degree) if bin(subset).count("1") == fanout]
    assert counts.sum() == counts[possible].sum()
    assert_uniform(p_of_cells(counts[possible], np.full(len(possible), 1 / len(possible))))


@pytest.mark.parametrize(
    ("degree", "fanout", "draws"), [(11, 10, 20_000), (100, 10, 40_000), (201, 200, 20_000)]
)
def test_order_of_floyd(degree: int, fanout: int, draws: int) -> None:
    """Picks number s + 1 is j = d - k + s with probability (s + 1) / (j + 1), else uniform below j.

    The order is part of the contract, though no order of the neighbours changes what a layer
    computes.
    """
    picks = draw_picks(degree, fanout, WITHOUT, draws)
    for s in range(0, fanout, max(1, fanout // 10)):
        j = degree - fanout + s
        cell = np.minimum(np.arange(j), 9) if j < 20 else np.arange(j) * 10 // j
        below = np.bincount(cell) / j * (1 - (s + 1) / (j + 1))
        column = picks[:, s]
        counts = np.append(np.bincount(cell[column[column < j]], minlength=below.size), (column == j).sum())
        assert (column <= j).all()
        if j == 0:
            continue
        assert_uniform(p_of_cells(counts, np.append(below, (s + 1) / (j + 1))))


@pytest.mark.parametrize(("degree", "fanout"), [(40_000, 200), (1_000_000, 1000)])
def test_last_neighbours_of_a_long_list(degree: int, fanout: int) -> None:
    """Floyd's algorithm treats the last k positions apart; they must be picked as often."""
    picks = draw_picks(degree, fanout, WITHOUT, 8_000)
    cell = (np.arange(degree) >= degree - fanout).astype(np.int64)
    assert_uniform(p_of_positions(picks, degree, cell, without=True))


class TestTheTestsCanFail:
    """The same statistics, the same number of draws, a sampler with a known fault."""

    @pytest.mark.parametrize(("degree", "fanout"), [(2, 1), (11, 10), (100, 10)])
    def test_floyd_off_by_one(self, degree: int, fanout: int) -> None:
        """Large fanouts hide the fault from statistics; equality with the reference sees it."""
        picks = floyd_off_by_one(degree, fanout, draws_for(fanout))
        assert rejected(p_of_positions(picks, degree, np.arange(degree), without=True))

    @pytest.mark.parametrize("fanout", FANOUTS)
    def test_modulo_bias(self, fanout: int) -> None:
        picks = modulo_of_16_bits(40_000, fanout, draws_for(fanout))
        assert rejected(p_of_positions(picks, 40_000, partitions(40_000, 1000)[0], without=False))

    def test_taking_turns(self) -> None:
        picks = taking_turns(100, 10, draws_for(10))
        assert rejected(p_of_positions(picks, 100, np.arange(100), without=True))

    def test_runs_of_neighbours(self) -> None:
        """A fault that only pairs show."""
        picks = a_run_of_neighbours(100, 10, draws_for(10))
        assert_uniform(p_of_positions(picks[:, :1], 100, np.arange(100), without=False))
        assert rejected(p_of_unordered_pairs(pair_of_each_draw(picks, 5), 100, partitions(100, 20)[0]))
