"""Memory that ranks of one host share, and that nobody can leave behind."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.leftovers import stays
from tests.support.ranks import launch, run_ranks

JOBS = "tests.comm.job_faults"


def test_ranks_of_a_host_see_each_others_blocks() -> None:
    sizes = [5000, 0, 3, 1 << 20]
    for result in run_ranks(f"{JOBS}:shared", 4, {"sizes": sizes}, hosts=[0, 0, 1, 0]):
        assert result.value == ([2] if result.rank == 2 else [0, 1, 3])


def test_memory_that_cannot_be_had_is_an_error_on_every_rank() -> None:
    for result in run_ranks(f"{JOBS}:too_much_shared", 2):
        assert result.value.startswith("(1,) memory of a host cannot be shared: rank 1 (host 0): ")


def test_a_write_to_a_block_for_reading_ends_the_writer() -> None:
    results = run_ranks(f"{JOBS}:written_through_a_reader", 2, check=False)
    assert [result.code for result in results] == [-11, 0]


@pytest.mark.parametrize("after", [0.0, 0.05, 0.2, None])
def test_nothing_is_left_when_all_ranks_are_killed(after: float | None, tmp_path: Path) -> None:
    """At some moment while the memory is being shared, or (None) when it is there."""
    before = _ours()
    with launch(f"{JOBS}:killed_with_memory", 3, {"folder": str(tmp_path)}) as job:
        if after is None:
            while len(list(tmp_path.iterdir())) < 3:
                time.sleep(0.01)
        else:
            time.sleep(after)
        job.kill()
    assert not stays(_ours, before)


def _ours() -> set[Any]:
    """Names of ours in shared memory and in the abstract namespace of sockets."""
    lines = Path("/proc/net/unix").read_text().splitlines()
    sockets = {line.split()[-1] for line in lines if "pyg_batchgnn" in line}
    return {*Path("/dev/shm").glob("*pyg_batchgnn*"), *sockets}
