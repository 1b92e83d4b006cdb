"""Ranks of links and their metrics, beside plain counting."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pyg_batchgnn.train.link_tasks import RankCounts

NAN, INF = math.nan, math.inf
#: Scores with many equal ones, and some that are not finite.
SCORES = st.one_of(
    st.integers(-3, 3).map(float), st.integers(-3, 3).map(float), st.sampled_from([NAN, INF, -INF])
)


def is_above(negative: float, link: float) -> bool:
    """Returns whether a negative is ranked before a link, whatever the order of equal scores."""
    if math.isnan(negative) or math.isnan(link):
        return True
    return negative > link or (negative == link and math.isinf(link))


def slow_rank(link: float, negatives: list[float]) -> float:
    """Returns the mean of the rank before and the rank behind all negatives of the same score."""
    first = 1 + sum(is_above(negative, link) for negative in negatives)
    last = 1 + sum(is_above(negative, link) or negative == link for negative in negatives)
    return (first + last) / 2


def hits_of_list(links: list[float], negatives: list[float], k: int) -> list[bool]:
    """Returns whether each link is above the k-th highest negative of all."""
    if len(negatives) < k:
        return [True] * len(links)
    limit = sorted((INF if math.isnan(one) else one for one in negatives), reverse=True)[k - 1]
    return [link > limit for link in links]


def equal(found: Tensor, wanted: list[float] | list[bool]) -> bool:
    return found.tolist() == wanted


@settings(max_examples=80)
@given(st.integers(0, 6).flatmap(lambda k: st.lists(st.lists(SCORES, min_size=k + 1, max_size=k + 1))))
def test_ranks_among_negatives_of_each_link(rows: list[list[float]]) -> None:
    links = [row[0] for row in rows]
    negatives = [row[1:] for row in rows]
    width = len(negatives[0]) if rows else 0
    counts = RankCounts.among_own(torch.tensor(links), torch.tensor(negatives).view(len(rows), width))
    ranks = [slow_rank(*pair) for pair in zip(links, negatives, strict=True)]
    assert equal(counts.rank, ranks)
    assert equal(counts.reciprocal(), [1 / rank for rank in ranks])
    for k in (1, 2, 3):
        assert equal(counts.hits_among_own(k), [rank <= k for rank in ranks])


@settings(max_examples=80)
@given(st.lists(SCORES), st.lists(SCORES))
def test_ranks_among_the_same_negatives(links: list[float], negatives: list[float]) -> None:
    counts = RankCounts.among_all(torch.tensor(links), torch.tensor(negatives))
    assert equal(counts.rank, [slow_rank(link, negatives) for link in links])
    for k in (1, 2, 5):
        assert equal(counts.hits_among_all(k), hits_of_list(links, negatives, k))


@settings(max_examples=80)
@given(st.lists(SCORES), st.lists(SCORES))
def test_both_ways_to_count_agree(links: list[float], negatives: list[float]) -> None:
    positive, shared = torch.tensor(links), torch.tensor(negatives)
    one = RankCounts.among_all(positive, shared)
    other = RankCounts.among_own(positive, shared.expand(len(links), len(negatives)))
    assert torch.equal(one.above, other.above) and torch.equal(one.at_least, other.at_least)


@pytest.mark.parametrize(
    ("link", "negative", "rank"),
    [
        *[(NAN, other, 4.0) for other in (NAN, INF, -INF, 0.0)],
        *[(own, NAN, 4.0) for own in (INF, -INF, 0.0)],
        (INF, INF, 4.0),
        (-INF, -INF, 4.0),
        (-INF, 0.0, 4.0),
        (0.0, INF, 4.0),
        (0.0, -INF, 1.0),
        (INF, 0.0, 1.0),
        (0.0, 0.0, 2.5),
    ],
)
def test_scores_that_are_not_finite_never_help(link: float, negative: float, rank: float) -> None:
    links, negatives = torch.tensor([link]), torch.full((1, 3), negative)
    for counts in (RankCounts.among_own(links, negatives), RankCounts.among_all(links, negatives[0])):
        assert counts.rank.item() == rank and counts.reciprocal().item() == 1.0 / rank
