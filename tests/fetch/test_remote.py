"""Fetch groups over ranks: the right rows, each remote one once, in two rounds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.ranks import run_ranks
from tests.support.tiers import WORLDS

JOBS = "tests.fetch.job_remote"


@pytest.mark.parametrize(("ranks", "hosts"), WORLDS, ids=str)
def test_groups_hold_what_the_whole_graph_holds(ranks: int, hosts: Sequence[int]) -> None:
    run_ranks(f"{JOBS}:groups", ranks, hosts=hosts)


def test_attributes_of_any_type_and_shape() -> None:
    run_ranks(f"{JOBS}:values", 2, hosts=[0, 1])


def test_the_steady_state_takes_no_memory() -> None:
    # A rank answers the other one while it fetches itself: how much of both overlaps depends on the
    # load. Buffers that are not kept would cost a call in each of the fourteen fetches at least.
    for result in run_ranks(f"{JOBS}:steady", 2, hosts=[0, 1]):
        assert result.value[-1] - result.value[1] <= 3
