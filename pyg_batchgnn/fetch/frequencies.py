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
class Frequencies:
    """How many rows of a table a minibatch needs with each probability."""

    rows: int  # the number of rows of the table
    probability: np.ndarray  # [k] the probabilities, ascending, the first is 0
    share: np.ndarray  # [k] the share of the rows that have each

    @classmethod
    def of(cls, needed: Sequence[Tensor], rows: int) -> Frequencies:
        """Estimates them from P minibatches. ``needed``: the rows of each, [n] int64, distinct."""
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
        """Returns how many distinct rows this many minibatches need together, on average."""
        return float(self.rows * (self.share * -np.expm1(minibatches * np.log1p(-self.probability))).sum())

    def sample(self, minibatches: int, size: int) -> list[Tensor]:
        """Draws the rows [n] int64 of each unit (``size`` minibatches) of an epoch of
        ``minibatches``, and of the next one, for a sample of the rows and of the units."""
        drawn = np.random.default_rng(0)
        count = max(1, round(self.rows / self._scale))
        # Evenly spread over the distribution, which is less noisy than drawing.
        at = np.searchsorted(np.cumsum(self.share), (np.arange(count) + 0.5) / count)
        unit = -np.expm1(size * np.log1p(-self.probability[at.clip(max=len(self.probability) - 1)]))
        drawn.shuffle(unit)  # a range of the file has rows of all kinds
        units = min(-(-minibatches // size), _UNITS)
        return [torch.from_numpy(np.flatnonzero(drawn.random(count) < unit)) for _ in range(2 * units)]

    def reads(
        self, units: list[Tensor], capacity: int, period: int, in_use: int
    ) -> tuple[float, float] | None:
        """Simulates an epoch: returns how many rows are read before its first unit, and on average
        before each later one; None if rows in memory do not suffice."""
        count = max(1, round(self.rows / self._scale))
        read = simulate(units, count, min(count, int(capacity / self._scale)), period, in_use)
        if read is None:
            return None
        later = read[1 : len(units) // 2]
        return read[0] * self._scale, sum(later) * self._scale / max(1, len(later))

    @property
    def _scale(self) -> float:
        return max(1.0, self.rows / _ROWS)


def _binomial(trials: int, probability: np.ndarray) -> np.ndarray:
    """Returns the probability of 0 to ``trials`` successes, [trials + 1, k]."""
    number = np.arange(trials + 1)[:, None]
    ways = np.array([float(comb(trials, one)) for one in range(trials + 1)])[:, None]
    return ways * probability**number * (1 - probability) ** (trials - number)
