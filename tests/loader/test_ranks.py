"""The loader over ranks: the bits of one process, in the rounds of the formulas."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.backends import needs_ccl
from tests.support.ranks import run_ranks
from tests.support.tiers import WORLDS

JOBS = "tests.loader.job_ranks"


@pytest.mark.parametrize(("ranks", "hosts"), WORLDS, ids=str)
def test_minibatches_are_those_of_one_process(ranks: int, hosts: Sequence[int]) -> None:
    run_ranks(f"{JOBS}:epochs", ranks, hosts=hosts)


@needs_ccl
def test_minibatches_over_ccl_are_those_of_one_process() -> None:
    run_ranks(f"{JOBS}:epochs", 2, {"backend": "ccl"}, hosts=[0, 1])


@pytest.mark.parametrize(("ranks", "hosts"), WORLDS[1:], ids=str)
def test_rounds_and_rows_are_those_of_the_formulas(ranks: int, hosts: Sequence[int]) -> None:
    run_ranks(f"{JOBS}:counts", ranks, hosts=hosts)


@pytest.mark.parametrize("job", ["sums_of_losses", "bfloat16", "automatic_sizes"])
def test_three_ranks(job: str) -> None:
    run_ranks(f"{JOBS}:{job}", 3, hosts=[0, 1, 1])


def test_impossible_and_differing_arguments_are_refused() -> None:
    run_ranks("tests.loader.job_rank_refusals:refusals", 3, hosts=[0, 1, 1])
