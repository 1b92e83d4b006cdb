"""The number of parts that a graph is cut into, and their limits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Goal:
    """The parts that a graph is cut into.

    Attributes:
        parts: the number of parts.
        total: [k] int64, the sums of the weights of all nodes.
        limit: [k] int64, the largest weights of a part. At least the mean rounded up.
    """

    parts: int
    total: Tensor
    limit: Tensor

    @classmethod
    def of(cls, parts: int, total: Tensor, slack: Tensor) -> Goal:
        """Allows parts ``slack`` [k] times the mean, or all that there is where that is less."""
        wanted = torch.minimum(slack * total / parts, total.to(slack.dtype))
        return cls.within(parts, total, wanted.to(torch.int64))

    @classmethod
    def within(cls, parts: int, total: Tensor, limit: Tensor) -> Goal:
        """Allows parts the limits [k], or the mean rounded up where that is more."""
        return cls(parts, total, torch.maximum(limit, -(-total // parts)))

    @property
    def slack(self) -> Tensor:
        """[k] float64, the limits over the means."""
        mean = self.total.to(torch.float64) / self.parts
        return torch.where(mean > 0, self.limit / mean, 1.0)
