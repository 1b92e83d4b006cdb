"""The loader over ranks with types, times, weights and subgraphs: the bits of one process.

Pairs of all factors are covered here. ``make test-all`` runs their full product.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.backends import needs_ccl
from tests.support.rank_coverings import TIMEOUT, over_ranks, run_covering
from tests.support.ranks import run_ranks
from tests.support.tiers import own_slices

JOBS = "tests.loader.job_rank_options"
RULES = "tests.loader.job_rank_rules"


@own_slices
@pytest.mark.timeout(TIMEOUT)
@over_ranks
def test_minibatches_are_those_of_one_process(ranks: int, hosts: Sequence[int], every: int) -> None:
    run_covering(f"{JOBS}:epochs", ranks, hosts, every)


@own_slices
@needs_ccl
@pytest.mark.timeout(TIMEOUT)
def test_minibatches_over_ccl_are_those_of_one_process() -> None:
    run_covering(f"{JOBS}:epochs", 2, [0, 1], 5, backend="ccl")


@pytest.mark.parametrize(
    "job", ["splits_and_refusals", "attributes_that_differ", "resumed", "times_in_pieces"]
)
def test_two_ranks(job: str) -> None:
    run_ranks(f"{RULES}:{job}", 2, hosts=[0, 1])


@pytest.mark.parametrize(("ranks", "hosts"), [(2, [0, 1]), (3, [0, 1, 1])], ids=str)
def test_graphs_of_odd_shapes(ranks: int, hosts: Sequence[int]) -> None:
    run_ranks(f"{RULES}:odd_graphs", ranks, {"first": 100 * ranks, "count": 25}, hosts=hosts)
