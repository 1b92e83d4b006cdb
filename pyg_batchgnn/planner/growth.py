"""The number of distinct nodes of minibatches that are fetched together (BatchGNN, appendix A).

The probe counts how many nodes were in exactly j of m sampled minibatches. From these counts follow
the distinct nodes of any k <= m minibatches, without further assumptions. For more minibatches, the
probability that a node is in a minibatch is estimated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

#: The number of probabilities on the estimate's grid, and of its rounds.
_GRID, _ROUNDS = 60, 400


@dataclass(frozen=True, eq=False)
class Growth:
    """The growth of the number of distinct nodes with the number of minibatches.

    Attributes:
        counts: [m], the number of nodes that were in exactly 1, 2, ..., m of m sampled minibatches.
            They may be means.
        population: the number of nodes that can be in a minibatch, at least the sum of ``counts``.
    """

    counts: tuple[float, ...]
    population: float

    @property
    def samples(self) -> int:
        """The number m of sampled minibatches."""
        return len(self.counts)

    @property
    def seen(self) -> float:
        """The number of distinct nodes of all samples together."""
        return sum(self.counts)

    @cached_property
    def mixture(self) -> tuple[Numbers, Numbers]:
        """The mixture of binomials with the maximum likelihood: probabilities, the largest first,
        and the number of nodes that have each.
        """
        m = self.samples
        grid = np.concatenate([[1.0], np.geomspace(1 / (4 * m * 16), 1 - 1 / (8 * m), _GRID)[::-1], [0.0]])
        unseen = max(self.population - self.seen, 0.0)
        counts = np.array([unseen, *self.counts])
        chance = _binomial(m, grid)
        weight = np.full(len(grid), counts.sum() / len(grid))
        for _ in range(_ROUNDS):
            expected = chance @ weight
            weight = weight * (chance.T @ (counts / np.maximum(expected, 1e-300)))
        return grid, weight

    def distinct(self, together: float) -> float:
        """Returns the expected number of distinct nodes.

        Interpolates linearly between whole numbers.
        """
        low = int(together)
        if low != together:
            share = together - low
            return (1 - share) * self.distinct(low) + share * self.distinct(low + 1)
        return self._rarefied(low) if low <= self.samples else self._extrapolated(low)

    def _rarefied(self, k: int) -> float:
        """Returns the mean over all choices of k samples.

        A node in j of the m samples is missed if all k are among the other m - j.
        """
        m, missed, total = self.samples, 1.0, 0.0
        for j, nodes in enumerate(self.counts, 1):
            missed = missed * max(m - k - j + 1, 0) / (m - j + 1)
            total += nodes * (1 - missed)
        return total

    def _extrapolated(self, k: int) -> float:
        """Returns the growth by the mixture, shifted to give exactly what was seen at m."""
        return min(self.population, self.seen + self._by_mixture(k) - self._by_mixture(self.samples))

    def _by_mixture(self, k: float) -> float:
        grid, weight = self.mixture
        return float((weight * (1 - (1 - grid) ** k)).sum())

    def likely(self) -> tuple[Numbers, Numbers]:
        """Returns the probabilities [c] that a minibatch holds a node, and the number of nodes [c]
        that have each."""
        return self.mixture

    def missed(self, together: float, kept: float) -> float:
        """Returns the expected number of distinct nodes outside the ``kept`` most likely ones."""
        if kept <= 0:
            return self.distinct(together)
        grid, weight = self.mixture
        before = np.concatenate([[0.0], weight.cumsum()[:-1]])
        left = weight - np.clip(kept - before, 0.0, weight)
        share = (left * (1 - (1 - grid) ** together)).sum() / max(self._by_mixture(together), 1e-300)
        return self.distinct(together) * float(share)


def _binomial(m: int, grid: Numbers) -> Numbers:
    """Returns the probabilities [m + 1, p] of j successes in m trials, computed in logarithms."""
    j = np.arange(m + 1)[:, None]
    steps = np.log(np.arange(1, m + 1))
    factorial = np.concatenate([[0.0], steps.cumsum()])
    choose = factorial[m] - factorial[j] - factorial[m - j]
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = (
            choose + np.where(j > 0, j * np.log(grid), 0.0) + np.where(j < m, (m - j) * np.log1p(-grid), 0.0)
        )
    return np.exp(logs)


def growth_of(times: Numbers, samples: int, population: float) -> Growth:
    """Returns the growth, given in how many samples each node was.

    Args:
        times: [n], the number of samples that hold each node.
        samples: the number of samples.
        population: as in `Growth`.
    """
    histogram = np.bincount(times.astype(np.int64), minlength=samples + 1)[1:]
    return Growth(tuple(float(count) for count in histogram), population)
