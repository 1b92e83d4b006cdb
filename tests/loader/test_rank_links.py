"""Links over ranks: the minibatches of one process, in the rounds of the formulas."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.backends import needs_ccl
from tests.support.rank_coverings import TIMEOUT, over_ranks, run_covering
from tests.support.ranks import run_ranks
from tests.support.tiers import own_slices

JOBS = "tests.loader.job_rank_links"


@own_slices
@pytest.mark.timeout(TIMEOUT)
@over_ranks
def test_minibatches_are_those_of_one_process(ranks: int, hosts: Sequence[int], every: int) -> None:
    run_covering(f"{JOBS}:epochs", ranks, hosts, every)


@own_slices
@needs_ccl
@pytest.mark.timeout(TIMEOUT)
def test_minibatches_over_ccl_are_those_of_one_process() -> None:
    run_covering(f"{JOBS}:epochs", 2, [0, 1], 9, backend="ccl")


@pytest.mark.parametrize("job", ["refusals", "agreement"])
def test_two_ranks(job: str) -> None:
    run_ranks(f"{JOBS}:{job}", 2, hosts=[0, 1])
