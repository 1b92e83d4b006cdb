"""Stores over ranks hold what the whole graph holds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.ranks import run_ranks

JOBS = "tests.store.job_dist"


@pytest.mark.parametrize(
    ("ranks", "hosts"), [(1, [0]), (2, [0, 1]), (3, [0, 1, 1]), (4, [0, 1, 0, 2])], ids=str
)
@pytest.mark.parametrize("job", ["reads", "writes", "graphs"])
def test_what_ranks_hold_together_is_the_whole_graph(job: str, ranks: int, hosts: Sequence[int]) -> None:
    run_ranks(f"{JOBS}:{job}", ranks, hosts=hosts)


@pytest.mark.parametrize("job", ["dtypes", "refusals", "no_columns"])
def test_two_ranks(job: str) -> None:
    run_ranks(f"{JOBS}:{job}", 2)
