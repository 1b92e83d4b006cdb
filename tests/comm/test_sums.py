"""Sums in the order of ranks, values, broadcasts, one rank, two communicators."""

from __future__ import annotations

import pytest

from tests.support.ranks import run_ranks
from tests.support.tiers import in_all

JOBS = "tests.comm.job_sums"


@pytest.mark.parametrize("hosts", [[0, 0], [0, 1, 2], *in_all([0] * 4)])
def test_sums_have_the_bits_of_adding_in_the_order_of_ranks(hosts: list[int]) -> None:
    run_ranks(f"{JOBS}:sums", len(hosts), hosts=hosts)


def test_values() -> None:
    results = run_ranks(f"{JOBS}:values", 4, hosts=[0, 1, 0, 1])
    for result in results:
        hosts = result.value.pop("hosts")
        assert hosts == [result.rank % 2, [0, 1, 0, 1], [result.rank % 2, result.rank % 2 + 2]]
        assert result.value == {
            "sum": 0.1 + 0.2 + 0.1 * 3 + 0.4,
            "max": -2,
            "min": -5,
            "json": [{"rank": rank, "text": "é" * rank} for rank in range(4)],
        }


def test_without_a_launcher_the_world_is_one_rank() -> None:
    run_ranks(f"{JOBS}:one_rank", 1)


def test_two_communicators_work_beside_each_other() -> None:
    run_ranks(f"{JOBS}:two_at_once", 2)
