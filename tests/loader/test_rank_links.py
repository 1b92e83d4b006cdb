"""Links over ranks: the minibatches of one process, in the rounds of the formulas."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from tests.support.backends import needs_ccl
from tests.support.ranks import run_ranks

JOBS = "tests.loader.job_rank_links"
FULL = bool(os.environ.get("PYG_BATCHGNN_TEST_ALL"))
TIMEOUT = 7200.0 if FULL else 120.0


@pytest.mark.timeout(TIMEOUT)
@pytest.mark.parametrize(
    ("ranks", "hosts", "every"),
    [(1, [0], 7), (2, [0, 1], 1), (3, [0, 1, 1], 7), (4, [0, 1, 2, 0], 2)],
    ids=str,
)
def test_minibatches_are_those_of_one_process(ranks: int, hosts: Sequence[int], every: int) -> None:
    arguments = {"full": FULL, "every": 1 if FULL else every}
    run_ranks(f"{JOBS}:epochs", ranks, arguments, hosts=hosts, timeout=TIMEOUT)


@needs_ccl
@pytest.mark.timeout(TIMEOUT)
def test_minibatches_over_ccl_are_those_of_one_process() -> None:
    arguments = {"backend": "ccl", "full": FULL, "every": 1 if FULL else 9}
    run_ranks(f"{JOBS}:epochs", 2, arguments, hosts=[0, 1], timeout=TIMEOUT)


@pytest.mark.parametrize("job", ["refusals", "agreement"])
def test_two_ranks(job: str) -> None:
    run_ranks(f"{JOBS}:{job}", 2, hosts=[0, 1])
