"""Fetch groups and feature caches of graphs of several types."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.ranks import run_ranks
from tests.support.tiers import in_all

JOBS = "tests.fetch.job_typed"


@pytest.mark.parametrize(("ranks", "hosts"), [*in_all((1, [0])), (3, [0, 1, 1])], ids=str)
def test_groups_hold_what_the_whole_graph_holds(ranks: int, hosts: Sequence[int]) -> None:
    run_ranks(f"{JOBS}:groups", ranks, hosts=hosts)


@pytest.mark.parametrize("ranks", [2, *in_all(4)])
def test_caches_hold_the_rows_that_are_worth_most(ranks: int) -> None:
    run_ranks(f"{JOBS}:caches", ranks)
