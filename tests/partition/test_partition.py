"""The partitioner equals the obvious one, for any number of ranks and any size of rounds."""

from __future__ import annotations

import pytest

from tests.comm.ranks import run_ranks

JOBS = "tests.partition.job_partition"


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_parts_equal_those_of_the_obvious_partitioner(ranks: int) -> None:
    run_ranks(f"{JOBS}:equals_the_obvious", ranks, {"rounds": [1 << 24, 3_000]})
