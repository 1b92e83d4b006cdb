"""Metrics equal their definitions, node by node and pair by pair, and scikit-learn's values."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pyg_batchgnn.train.tasks import average_precision, f1_score, roc_auc

#: Few distinct scores, so that many are equal.
nodes = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=40)


def as_tensors(found: list[tuple[int, bool]]) -> tuple[Tensor, Tensor]:
    scores, positive = zip(*found, strict=True)
    return torch.tensor(scores, dtype=torch.float32), torch.tensor(positive)


@given(nodes)
def test_roc_auc_is_the_share_of_pairs_in_the_right_order(found: list[tuple[int, bool]]) -> None:
    pairs = [(a > b) + 0.5 * (a == b) for a, is_a in found for b, is_b in found if is_a and not is_b]
    area = roc_auc(*as_tensors(found))
    assert area == (pytest.approx(sum(pairs) / len(pairs)) if pairs else None)


@given(nodes)
def test_average_precision_is_the_mean_over_positive_nodes(found: list[tuple[int, bool]]) -> None:
    positive = [score for score, hit in found if hit]
    value = average_precision(*as_tensors(found))
    if not positive:
        assert value is None
        return
    at_or_above = [[hit for other, hit in found if other >= score] for score in positive]
    assert value == pytest.approx(sum(sum(hits) / len(hits) for hits in at_or_above) / len(positive))


def test_the_values_of_scikit_learn() -> None:
    scores = torch.tensor([0.1, 0.4, 0.35, 0.8, 0.8, 0.2, 0.65, 0.35])
    positive = torch.tensor([0, 0, 1, 1, 0, 0, 1, 0]).bool()
    assert roc_auc(scores, positive) == pytest.approx(0.7333333333333333)
    assert average_precision(scores, positive) == pytest.approx(0.5555555555555556)


@given(nodes, st.integers(0, 39))
def test_a_nan_among_the_scores_makes_the_measure_nan(found: list[tuple[int, bool]], place: int) -> None:
    scores, positive = as_tensors(found)
    known = roc_auc(scores, positive), average_precision(scores, positive)
    scores[place % len(scores)] = math.nan
    for before, after in zip(
        known, (roc_auc(scores, positive), average_precision(scores, positive)), strict=True
    ):
        assert after is None if before is None else after is not None and math.isnan(after)


def test_infinite_scores_compare_as_numbers() -> None:
    scores, positive = torch.tensor([math.inf, -math.inf, 0.0]), torch.tensor([True, False, True])
    assert roc_auc(scores, positive) == average_precision(scores, positive) == 1.0
    assert roc_auc(scores, ~positive) == 0.0


def test_f1() -> None:
    true, false, missed = torch.tensor([3, 0, 0]), torch.tensor([1, 2, 0]), torch.tensor([2, 1, 0])
    assert f1_score(true, false, missed).tolist() == [6 / 9, 0.0, 0.0]
