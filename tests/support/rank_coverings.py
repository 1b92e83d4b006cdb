"""Runs of jobs that go through the combinations of options of loaders over ranks."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from tests.support.ranks import run_ranks

#: True in ``make test-all``: all combinations, and not some that have every pair.
FULL = bool(os.environ.get("PYG_BATCHGNN_TEST_ALL"))
TIMEOUT = 7200.0 if FULL else 120.0

#: Marks a test with the numbers of ranks, their hosts, and the share of combinations that they run:
#: every n-th.
over_ranks = pytest.mark.parametrize(
    ("ranks", "hosts", "every"),
    [(1, [0], 7), (2, [0, 1], 1), (3, [0, 1, 1], 7), (4, [0, 1, 2, 0], 2)],
    ids=str,
)


def run_covering(job: str, ranks: int, hosts: Sequence[int], every: int, **arguments: str) -> None:
    """Runs every n-th combination of a job, or all of them in ``make test-all``."""
    arguments_of_job = {"full": FULL, "every": 1 if FULL else every, **arguments}
    run_ranks(job, ranks, arguments_of_job, hosts=hosts, timeout=TIMEOUT)
