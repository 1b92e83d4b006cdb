"""The errors of ranks: which of them reports."""

from __future__ import annotations

import pytest

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.train.errors import FirstRankError, TrainError
from pyg_batchgnn.train.ranks import Ranks
from tests.support.thread_ranks import run_threads


@pytest.mark.parametrize(
    ("failing", "reported"),
    [((), None), ((1,), "rank 1: no file of 1"), ((0, 2), "no file of 0"), ((0, 1, 2), "no file of 0")],
)
def test_the_first_rank_reports_an_error_of_any_rank(failing: tuple[int, ...], reported: str | None) -> None:
    ends: dict[int, Exception | None] = {}

    def job(comm: Communicator) -> None:
        ranks = Ranks(comm, comm)
        ends[ranks.rank] = None
        try:
            with ranks.any_error():
                if ranks.rank in failing:
                    raise TrainError(f"no file of {ranks.rank}")
        except (TrainError, FirstRankError) as error:
            ends[ranks.rank] = error

    run_threads(job, 3)
    if reported is None:
        assert ends == dict.fromkeys(range(3))
        return
    assert isinstance(ends[0], TrainError) and str(ends[0]) == reported
    assert isinstance(ends[1], FirstRankError) and isinstance(ends[2], FirstRankError)
