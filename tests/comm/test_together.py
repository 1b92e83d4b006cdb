"""Work that fails on all ranks where it fails on one."""

from __future__ import annotations

import pytest

from pyg_batchgnn.comm import CommError, Communicator, DivergenceError
from tests.support.ranks import run_ranks
from tests.support.thread_ranks import run_threads

JOBS = "tests.comm.job_together"


def test_every_rank_gets_its_own_result() -> None:
    results = run_ranks(f"{JOBS}:together", 3, {"failing": []})
    assert [result.value for result in results] == ["0", "10", "20"]


def test_a_failure_on_some_ranks_is_raised_on_all() -> None:
    text = "rank 1 (host 1): no room for 1; rank 2 (host 0): no room for 2"
    results = run_ranks(f"{JOBS}:together", 3, {"failing": [1, 2]}, hosts=[0, 1, 0])
    assert [result.value for result in results] == [text] * 3


def test_the_caller_may_word_the_error() -> None:
    results = run_ranks(f"{JOBS}:worded", 2, {"failing": [1]})
    assert [result.value for result in results] == ["[(1, 'no room for 1')]"] * 2


def test_an_error_without_a_text_is_a_failure_too() -> None:
    def fail() -> None:
        raise OSError

    with Communicator.create("alone") as comm, pytest.raises(CommError, match=r"rank 0 \(host 0\): OSError"):
        comm.run_together(fail)


def test_an_unexpected_error_is_raised_as_it_is() -> None:
    with Communicator.create("alone") as comm, pytest.raises(ZeroDivisionError):
        comm.run_together(lambda: 1 // 0)


def test_values_are_not_taken_for_arguments() -> None:
    def meet(comm: Communicator) -> None:
        with pytest.raises(DivergenceError, match="comparison of arguments"):
            comm.check_agreement({"seed": 1}) if comm.rank else comm.all_gather_json("no room")

    run_threads(meet, 2)
