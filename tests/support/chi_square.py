"""Chi-square tests with their exact covariances, so that a p-value of 1e-4 means what it says.

Samples are fixed by their seeds: a test passes always or never. `assert_uniform` also refuses
counts that agree too well, as those of a sampler that takes turns would.
"""

from __future__ import annotations

from math import comb

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

TOO_FAR = 1e-4
TOO_CLOSE = 1e-5
MIN_EXPECTED = (
    5.0  # the usual least expected count for which the chi-square distribution is a good approximation
)


def assert_uniform(p: float) -> None:
    """The counts behind a p-value look drawn from the distribution that they were compared with."""
    assert p > TOO_FAR, f"counts are too far from what is expected: p = {p:.2e}"
    assert p < 1 - TOO_CLOSE, f"counts are too close to what is expected: 1 - p = {1 - p:.2e}"


def rejected(p: float) -> bool:
    """Returns whether `assert_uniform` would fail, with a margin of a thousand."""
    return p < TOO_FAR / 1000 or p > 1 - TOO_CLOSE / 1000


def p_of_cells(counts: Ints, probabilities: Floats) -> float:
    """p-value of independent draws that fall into cells with given probabilities."""
    expected = counts.sum() * probabilities
    assert np.isclose(probabilities.sum(), 1) and expected.min() >= MIN_EXPECTED, (
        "too few draws for these cells"
    )
    return float(chdtrc(counts.size - 1, ((counts - expected) ** 2 / expected).sum()))


def p_of_positions(picks: Ints, degree: int, cell: Ints, without: bool) -> float:
    """p-value of the number of picks in each cell of neighbours.

    picks [draws, k]; cell [degree] gives the cell of each position. Without replacement a draw's
    counts are multivariate hypergeometric, whose covariance is (d - k) / (d - 1) of the multinomial
    one.
    """
    draws, fanout = picks.shape
    expected = draws * fanout * np.bincount(cell) / degree
    assert expected.min() >= MIN_EXPECTED, "too few draws for these cells"
    counts = np.bincount(cell[picks.ravel()], minlength=expected.size)
    statistic = ((counts - expected) ** 2 / expected).sum()
    shrink = (degree - fanout) / (degree - 1) if without else 1.0
    return float(chdtrc(expected.size - 1, statistic / shrink))


def p_of_unordered_pairs(pairs: Ints, degree: int, cell: Ints) -> float:
    """p-value of pairs [draws, 2] of different positions, by their unordered pair of cells."""
    sizes = np.bincount(cell)
    low, high = np.sort(cell[pairs], axis=1).T
    first, second = np.triu_indices(sizes.size)
    ways = np.where(first == second, sizes[first] * (sizes[first] - 1) / 2, sizes[first] * sizes[second])
    table = np.zeros((sizes.size, sizes.size), dtype=np.int64)
    np.add.at(table, (low, high), 1)
    possible = ways > 0
    counts = table[first, second]
    assert counts[~possible].sum() == 0, "a pair occurred that cannot"
    return p_of_cells(counts[possible], ways[possible] / comb(degree, 2))


def p_of_joint(first: Ints, second: Ints, sizes: Ints) -> float:
    """p-value of two columns of cells being independent, each cell as likely as its size says."""
    share = sizes / sizes.sum()
    counts = np.bincount(first.ravel() * sizes.size + second.ravel(), minlength=sizes.size**2)
    return p_of_cells(counts, np.outer(share, share).ravel())


def p_of_permutations(permutations: Ints, blocks: int) -> float:
    """Returns the p-value of permutations [draws, n] from counts of (block of positions, of
    values)."""
    draws, n = permutations.shape
    size = n // blocks
    assert size * blocks == n and draws * size / blocks >= MIN_EXPECTED, "too few draws for these blocks"
    where = np.broadcast_to(np.arange(n) // size, permutations.shape)
    counts = np.bincount((where * blocks + permutations // size).ravel(), minlength=blocks**2)
    statistic = ((counts - draws * size / blocks) ** 2).sum() * (n - 1) / (draws * size**2)
    return float(chdtrc((blocks - 1) ** 2, statistic))


def p_of_whole_permutations(permutations: Ints) -> float:
    """p-value of all n! permutations being equally likely, from draws [draws, n] of a small n."""
    n = permutations.shape[1]
    _, counts = np.unique(permutations, axis=0, return_counts=True)
    cells = np.prod(np.arange(1, n + 1))
    missing = np.zeros(cells - counts.size, dtype=np.int64)
    return p_of_cells(np.concatenate([counts, missing]), np.full(cells, 1 / cells))
