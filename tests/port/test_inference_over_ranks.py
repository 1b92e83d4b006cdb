"""The inference of all nodes over ranks equals the forward pass of the whole graph."""

from __future__ import annotations

import pytest

from tests.support.ranks import run_ranks

JOB = "tests.port.job_inference:"


@pytest.mark.parametrize("hosts", [[0], [0, 0], [0, 1, 1, 2]], ids=str)
def test_each_rank_has_the_rows_of_its_nodes(hosts: list[int]) -> None:
    run_ranks(f"{JOB}equality", len(hosts), hosts=hosts)


def test_halo_rows_travel_once_per_layer() -> None:
    run_ranks(f"{JOB}rows_exchanged", 3, hosts=[0, 1, 2])
