"""Ranks of links among pairs that are none, and the metrics of ranks as OGB's evaluator defines
them.

Scores that are not finite never help a link. A NaN, of the link or of a negative, counts as a
negative with a higher score. Infinite scores compare as numbers do: a negative of minus infinity,
as of a masked candidate, lies below every finite score. But where link and negative have the same
infinite score, the negative counts as higher.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class RankCounts:
    """The place of links among negatives, by score.

    Attributes:
        above: [n] int64, the number of negatives with a higher score than each link.
        at_least: [n] int64, the number of negatives with at least the score of each link.
    """

    above: Tensor
    at_least: Tensor

    @classmethod
    def among_own(cls, links: Tensor, negatives: Tensor) -> RankCounts:
        """Counts for each link its own negatives.

        Args:
            links: [n] scores.
            negatives: [n, k] scores.
        """
        own = links.unsqueeze(1)
        at_least = ~(negatives < own)
        above = at_least & ~((negatives == own) & own.isfinite())
        return cls(above.sum(dim=1), at_least.sum(dim=1))

    @classmethod
    def among_all(cls, links: Tensor, negatives: Tensor) -> RankCounts:
        """Counts the same negatives for all links.

        Args:
            links: [n] scores.
            negatives: [m] scores.
        """
        ordered = negatives.masked_fill(negatives.isnan(), math.inf).sort().values
        below, up_to = (torch.searchsorted(ordered, links, right=right) for right in (False, True))
        below = torch.where(links.isnan(), 0, below)
        return cls(len(ordered) - torch.where(links.isfinite(), up_to, below), len(ordered) - below)

    @property
    def rank(self) -> Tensor:
        """[n] float64, the mean of the best and the worst rank that equal scores allow, from 1."""
        return 0.5 * (self.above + self.at_least).double() + 1.0

    def reciprocal(self) -> Tensor:
        """Returns [n] float64, one over the rank of each link. Their mean is the MRR."""
        return 1.0 / self.rank

    def hits_among_own(self, k: int) -> Tensor:
        """Returns [n] bool, whether the rank of each link is at most k."""
        return self.rank <= k

    def hits_among_all(self, k: int) -> Tensor:
        """Returns [n] bool, whether the score of each link is above the k-th highest negative.

        All are if there are fewer than k negatives.
        """
        return self.at_least < k
