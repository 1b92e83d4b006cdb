"""The probability that sampling takes an edge."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.sample.plan import Fanout, Replacement


def taken_probability(degree: Tensor, fanout: Fanout, replacement: Replacement) -> Tensor:
    """Returns the probability that sampling a node takes a given one of its in-edges.

    Args:
        degree: [n] floating point, the number of in-edges of each node.
        fanout: the number of neighbours to pick, -1 for all, or a share of them.
        replacement: whether a neighbour may be picked more than once.

    Returns:
        [n], of the same type.
    """
    degree = degree.clamp(min=1)
    if fanout < 0:
        return torch.ones_like(degree)
    picks = _share(degree, fanout) if isinstance(fanout, float) else fanout
    if replacement is Replacement.WITH:
        return 1 - (1 - 1 / degree) ** picks
    return (picks / degree).clamp(max=1)


def _share(degree: Tensor, fanout: float) -> Tensor:
    """Returns the picks that a share of the neighbours stands for, as the kernel counts them."""
    # A product such as 0.1 * 30 may come out a little too large.
    return (degree.double() * fanout - 1e-9).ceil().clamp(min=1).to(degree.dtype)
