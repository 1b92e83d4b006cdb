"""Exact measures of predictions. Each equals scikit-learn's function of the same name.

Scores may be infinite, and compare as numbers do. Where one is NaN, the measure is NaN.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def roc_auc(scores: Tensor, positive: Tensor) -> float | None:
    """Returns the area under the ROC curve of one label.

    It is the probability that a positive node has a higher score than a negative one. Equal scores
    count half.

    Args:
        scores: [n] floating-point, higher for positive nodes.
        positive: [n] bool.

    Returns:
        The area, or None unless there are positive and negative nodes.
    """
    true, false = _curve(scores, positive)
    if not len(true) or not true[-1] or not false[-1]:
        return None
    if scores.isnan().any():
        return math.nan
    area = torch.trapezoid(_from_zero(true), _from_zero(false))
    return float(area / (true[-1] * false[-1]))


def average_precision(scores: Tensor, positive: Tensor) -> float | None:
    """Returns the average precision of one label: the mean of precision over recall's steps.

    Args:
        scores: [n] floating-point, higher for positive nodes.
        positive: [n] bool.

    Returns:
        The average, or None if there are no positive nodes.
    """
    true, false = _curve(scores, positive)
    if not len(true) or not true[-1]:
        return None
    if scores.isnan().any():
        return math.nan
    precision = true / (true + false)
    return float((precision * _from_zero(true).diff()).sum() / true[-1])


def f1_score(true: Tensor, false: Tensor, missed: Tensor) -> Tensor:
    """Returns the F1 score of each class or label, float64. It is 0 where all counts are 0.

    Args:
        true: the number of nodes that were rightly predicted to have it.
        false: the number of nodes that were wrongly predicted to have it.
        missed: the number of nodes that have it and were predicted not to.
    """
    twice = 2 * true.double()
    return twice / (twice + false + missed).clamp(min=1)


def _curve(scores: Tensor, positive: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the counts of positive and of negative nodes at or above each distinct score.

    Both are float64, from the highest score to the lowest.
    """
    ordered, order = scores.sort(descending=True)
    hits = positive[order]
    last = torch.ones(len(ordered), dtype=torch.bool)
    last[:-1] = ordered[1:] != ordered[:-1]
    true = hits.cumsum(0)[last]
    seen = last.nonzero()[:, 0] + 1
    return true.double(), (seen - true).double()


def _from_zero(counts: Tensor) -> Tensor:
    return torch.cat([counts.new_zeros(1), counts])
