"""Historical embeddings at their limits, where they are the exact mode, over real ranks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.ranks import run_ranks
from tests.support.tiers import in_all

JOBS = "tests.history.job_history"


@pytest.mark.parametrize(("graphs", "hosts"), [*in_all((1, [0])), (5, [0, 1]), (2, [0, 1, 1])], ids=str)
def test_full_caches_are_the_exact_mode(graphs: int, hosts: Sequence[int]) -> None:
    run_ranks(f"{JOBS}:full_caches", len(hosts), {"graphs": graphs}, hosts=hosts)


def test_pushes_are_bounded_and_counted() -> None:
    for result in run_ranks(f"{JOBS}:traffic", 3, {"most": 4, "delay": 2}, hosts=[0, 1, 2]):
        assert 0 < result.value["rates"][0] < 1 and result.value["left"] > 0


@pytest.mark.parametrize("stop", [3, 4, 6])
def test_runs_repeat_and_resume(stop: int) -> None:
    run_ranks(f"{JOBS}:repeated", 2, {"stop": stop})
