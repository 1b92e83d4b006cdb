"""Ranks of links and their metrics, beside plain counting."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pyg_batchgnn.train.task.link_metrics import RankCounts

#: Scores with many equal ones.
SCORES = st.integers(-3, 3).map(float)


def slow_rank(link: float, negatives: list[float]) -> float:
    """Returns the mean of the rank before and the rank behind all negatives of the same score."""
    first = 1 + sum(negative > link for negative in negatives)
    last = 1 + sum(negative >= link for negative in negatives)
    return (first + last) / 2


def hits_of_list(links: list[float], negatives: list[float], k: int) -> list[bool]:
    """Returns whether each link is above the k-th highest negative of all."""
    if len(negatives) < k:
        return [True] * len(links)
    limit = sorted(negatives, reverse=True)[k - 1]
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


def test_both_ways_to_count_agree() -> None:
    links, negatives = torch.randn(50), torch.randn(30)
    both = RankCounts.among_all(links, negatives), RankCounts.among_own(links, negatives.expand(50, 30))
    assert torch.equal(both[0].above, both[1].above) and torch.equal(both[0].at_least, both[1].at_least)
