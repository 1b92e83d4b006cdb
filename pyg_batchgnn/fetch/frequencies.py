"""An estimate of how often rows are needed, and of what a cache then reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.fetch.sweep import simulate

#: Steps of expectation and maximisation. With 300 of them rows that few minibatches need are taken
#: for rows that none needs: of an epoch of 1,184 minibatches, 128 of which were sampled, 11 % of
#: the distinct rows were missing; with these 3 %. They take a quarter of a second.
_STEPS = 10_000
#: Probabilities that are told apart.
_GRID = 60
#: Rows that stand for all of a table where a cache is simulated.
_ROWS = 1 << 15
#: Units that are simulated; more repeat what these show.
_UNITS = 128


@dataclass(frozen=True, eq=False)
class RowReads:
    """The rows that units read, predicted."""

    needed: float  # rows of a unit, on average
    first: float  # rows that are read before the first unit
    later: np.ndarray  # [m] rows that are read before each of some later units, which stand for all
    total: float  # rows that all units of an epoch read


@dataclass(frozen=True, eq=False)
class Frequencies:
    """The rows of a table by the probability that a minibatch needs one.

    Minibatches are drawn at random, so the number of minibatches among P that need a row of
    probability p is binomial. The shares are those that explain the counts best (maximum
    likelihood of a mixture on a grid of probabilities).
    """

    rows: int  # the number of rows of the table
    probability: np.ndarray  # [k] the probabilities, ascending, the first is 0
    share: np.ndarray  # [k] the share of the rows that have each

    @classmethod
    def of(cls, needed: Sequence[Tensor], rows: int) -> Frequencies:
        """Estimates the shares from P minibatches.

        ``needed``: for each minibatch its rows, [n] int64, distinct.
        """
        probes = len(needed)
        _, often = torch.unique(torch.cat(list(needed)), return_counts=True)
        counts = torch.bincount(often, minlength=probes + 1).numpy().astype(float)
        counts[0] = rows - often.numel()
        grid = np.concatenate([[0.0], np.geomspace(1e-3 / probes, 1 - 1e-6, _GRID)])
        likelihood = _binomial(probes, grid)
        share = np.full(len(grid), 1 / len(grid))
        for _ in range(_STEPS):
            joint = likelihood * share
            share = ((counts / joint.sum(1).clip(1e-300)) @ joint) / rows
        return cls(rows, grid, share)

    def distinct(self, minibatches: int) -> float:
        """Returns the number of distinct rows that some minibatches need together."""
        return float(self.rows * (self.share * -np.expm1(minibatches * np.log1p(-self.probability))).sum())

    def reads(self, minibatches: int, size: int, capacity: int, period: int, in_use: int) -> RowReads | None:
        """Simulates an epoch of units of ``size`` minibatches that is followed by another one.

        Some rows stand for all of them.

        Args:
            capacity: the number of rows that memory holds.
            period: the units of a sweep over the file.
            in_use: the units before one that are in use while it is prepared.

        Returns:
            None if memory does not hold the rows that wait for their use.
        """
        drawn = np.random.default_rng(0)
        scale = max(1.0, self.rows / _ROWS)
        count = max(1, round(self.rows / scale))
        # Evenly spread over the distribution, which is less noisy than drawing.
        at = np.searchsorted(np.cumsum(self.share), (np.arange(count) + 0.5) / count)
        unit = -np.expm1(size * np.log1p(-self.probability[at.clip(max=len(self.probability) - 1)]))
        drawn.shuffle(unit)  # a range of the file has rows of all kinds
        units = min(-(-minibatches // size), _UNITS)
        string = [torch.from_numpy(np.flatnonzero(drawn.random(count) < unit)) for _ in range(2 * units)]
        read = simulate(string, count, min(count, int(capacity / scale)), period, in_use)
        if read is None:
            return None
        read, string = read[:units], string[:units]
        later = np.array(read[1:], dtype=float) * scale
        needed = sum(map(len, string)) / max(1, units)
        total = read[0] * scale + (later.mean() * (-(-minibatches // size) - 1) if len(later) else 0.0)
        return RowReads(needed * scale, read[0] * scale, later, float(total))


def _binomial(trials: int, probability: np.ndarray) -> np.ndarray:
    """Returns the probability of each number of successes, [trials + 1, k]."""
    number = np.arange(trials + 1)[:, None]
    ways = np.array([float(comb(trials, one)) for one in range(trials + 1)])[:, None]
    return ways * probability**number * (1 - probability) ** (trials - number)
