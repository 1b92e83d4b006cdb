"""The replicated topology equals that of one process; ranks of a host read each other's tables."""

from __future__ import annotations

import pytest

from tests.support.ranks import run_ranks


@pytest.mark.parametrize(
    ("hosts", "round_bytes"), [([0], 1 << 24), ([0, 0, 1], 3_000), ([0, 1, 0, 1], 1 << 24)]
)
def test_every_rank_reads_the_whole_topology_and_its_hosts_tables(hosts: list[int], round_bytes: int) -> None:
    run_ranks(
        "tests.store.job_hybrid:whole_graph_everywhere",
        len(hosts),
        {"round_bytes": round_bytes},
        hosts=hosts,
    )
