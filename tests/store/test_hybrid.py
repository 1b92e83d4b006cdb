"""The replicated topology equals that of one process; ranks of a host read each other's tables."""

from __future__ import annotations

import pytest

from tests.support.ranks import run_ranks


@pytest.mark.parametrize(
    ("hosts", "round_bytes"), [([0], 1 << 24), ([0, 0, 1], 3_000), ([0, 1, 0, 1], 1 << 24)]
)
@pytest.mark.parametrize("job", ["whole_graph_everywhere", "typed_graphs_everywhere"])
def test_every_rank_reads_the_whole_topology(job: str, hosts: list[int], round_bytes: int) -> None:
    run_ranks(f"tests.store.job_hybrid:{job}", len(hosts), {"round_bytes": round_bytes}, hosts=hosts)
