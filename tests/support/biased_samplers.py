"""Samplers with the faults that have been published, to show that the statistical tests see them.

All give positions in the adjacency list, [draws, fanout].
"""

from __future__ import annotations

import numpy as np

from tests.support.chi_square import Ints


def floyd_off_by_one(degree: int, fanout: int, draws: int) -> Ints:
    """Draws by Floyd's algorithm with bounded(j) in place of bounded(j + 1)."""
    generator = np.random.default_rng(0)
    picks = np.empty((draws, fanout), dtype=np.int64)
    for column, j in enumerate(range(degree - fanout, degree)):
        t = generator.integers(0, max(j, 1), draws)
        taken = (picks[:, :column] == t[:, None]).any(axis=1)
        picks[:, column] = np.where(taken, j, t)
    return picks


def modulo_of_16_bits(degree: int, fanout: int, draws: int) -> Ints:
    """Draws with replacement from 16 random bits modulo the degree."""
    return np.random.default_rng(1).integers(0, 2**16, (draws, fanout)) % degree


def taking_turns(degree: int, fanout: int, draws: int) -> Ints:
    """No chance at all: each neighbour in its turn."""
    return (np.arange(draws)[:, None] + np.arange(fanout) * (degree // fanout)) % degree


def a_run_of_neighbours(degree: int, fanout: int, draws: int) -> Ints:
    """A random start and its successors: every neighbour equally likely, pairs not."""
    start = np.random.default_rng(2).integers(0, degree, (draws, 1))
    return (start + np.arange(fanout)) % degree


def one_key_for_all_nodes(degree: int, draws: int, nodes: int) -> Ints:
    """[draws, nodes]: the nodes of a minibatch all see the same random words."""
    return np.random.default_rng(3).integers(0, degree, (draws, 1)).repeat(nodes, axis=1)


def swap_with_an_earlier_place(n: int, draws: int) -> Ints:
    """Shuffles so that every element moves: only cyclic permutations (Sattolo's algorithm)."""
    generator = np.random.default_rng(4)
    permutations = np.tile(np.arange(n), (draws, 1))
    rows = np.arange(draws)
    for i in range(n - 1, 0, -1):
        j = generator.integers(0, i, draws)
        permutations[rows, i], permutations[rows, j] = permutations[rows, j], permutations[rows, i].copy()
    return permutations


def rotations(n: int, draws: int) -> Ints:
    """A random rotation: every position uniform, almost all permutations missing."""
    return (np.random.default_rng(5).integers(0, n, (draws, 1)) + np.arange(n)) % n
