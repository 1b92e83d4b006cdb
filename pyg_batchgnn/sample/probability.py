"""The probability that sampling takes an edge."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.sample.plan import Replacement


def taken_probability(degree: Tensor, fanout: int, replacement: Replacement) -> Tensor:
    """Returns the probability that sampling a node takes a given one of its in-edges.

    Args:
        degree: [n] floating point, the number of in-edges of each node.
        fanout: the number of neighbours to pick; -1 picks all.
        replacement: whether a neighbour may be picked more than once.

    Returns:
        [n], of the same type.
    """
    degree = degree.clamp(min=1)
    if fanout < 0:
        return torch.ones_like(degree)
    if replacement is Replacement.WITH:
        return 1 - (1 - 1 / degree) ** fanout
    return (fanout / degree).clamp(max=1)
