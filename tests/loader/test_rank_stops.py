"""Epochs of ranks that end early, fail, or go on in another loader."""

from __future__ import annotations

import itertools

import pytest

from tests.support.ranks import run_ranks

JOBS = "tests.loader.job_rank_stops"


@pytest.mark.parametrize("job", ["resumed", "stopping", "dropped"])
def test_three_ranks(job: str) -> None:
    run_ranks(f"{JOBS}:{job}", 3, hosts=[0, 1, 1])


def test_an_error_in_what_is_prepared_ahead_is_told_to_the_others() -> None:
    first, second, third = (one.value for one in run_ranks(f"{JOBS}:raising_ahead", 3))
    assert second == "ArithmeticError: the third macrobatch"
    for text in (first, third):
        assert "rank 1 (host 0) raised ArithmeticError: the third macrobatch" in text


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_global_schedule_goes_on_at_another_number_of_ranks(drop_last: bool) -> None:
    def dealt(ranks: int, steps: int, state: object) -> tuple[list[list[int]], object]:
        arguments = {"steps": steps, "state": state, "drop_last": drop_last}
        results = run_ranks(f"{JOBS}:first_steps", ranks, arguments)
        assert all(result.value["state"] == results[0].value["state"] for result in results)
        steps_of = [result.value["seeds"] for result in results]
        return [one for step in zip(*steps_of, strict=True) for one in step], results[0].value["state"]

    alone, _ = dealt(1, 100, None)
    begun, state = dealt(2, 1, None)
    more, state = ([], state) if drop_last else dealt(3, 1, state)  # 3 ranks have no whole step left
    end, _ = dealt(1, 100, state)
    together = [*begun, *more, *end]
    assert list(itertools.takewhile(bool, together)) == alone
