"""The partitioner equals the obvious one, for any number of ranks and any size of rounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.ranks import run_ranks
from tests.support.tiers import in_all

JOBS = "tests.partition.job_partition"


@pytest.mark.parametrize("ranks", [*in_all(1), 2, *in_all(4)])
def test_parts_equal_those_of_the_obvious_partitioner(ranks: int) -> None:
    run_ranks(f"{JOBS}:equals_the_obvious", ranks, {"rounds": [1 << 24, 3_000]})


@pytest.mark.parametrize("ranks", [3])
def test_the_parts_do_not_depend_on_how_many_ranks_read(ranks: int) -> None:
    run_ranks(f"{JOBS}:any_number_of_parts", ranks)


@pytest.mark.parametrize("ranks", [*in_all(1), 3])
def test_streamed_parts_equal_those_of_the_obvious_partitioner(ranks: int) -> None:
    run_ranks(f"{JOBS}:streams", ranks)


@pytest.mark.parametrize("ranks", [2])
def test_streaming_cuts_fewer_edges_and_balances_all_loads(ranks: int) -> None:
    found = run_ranks(f"{JOBS}:compare_policies", ranks)[0].value
    for policy in ("ldg", "fennel"):
        assert found[policy]["cut"] < 0.5 * found["random"]["cut"], found
        assert max(found[policy][load] for load in ("nodes", "edges", "train")) < 1.1, found
    assert found["contiguous"]["edges"] < 1.02, found


@pytest.mark.parametrize("ranks", [2])
def test_streaming_keeps_all_limits_or_says_why_not(ranks: int) -> None:
    found = run_ranks(f"{JOBS}:several_limits", ranks)[0].value
    for worst, said in [*found[:2], *found[4:]]:  # communities
        assert said == [] and worst.pop("val") <= 1.1 and max(worst.values()) <= 1.05, (worst, said)
    for worst, said in found[2:4]:  # the hub
        assert [one for one in said if "in-edges, more than 1.05: one node alone" in one], said
        assert worst["nodes"] <= 1.05, worst


def test_memory_is_bounded_by_the_share(tmp_path: Path) -> None:
    """At most twice the share and some rounds of 1 MiB: less than the graph and the share."""
    nodes, edges = 200_000, 8_000_000
    draw = np.random.default_rng(1)
    np.save(tmp_path / "edge_index.npy", draw.integers(0, nodes, (2, edges), dtype=np.int32))
    np.save(tmp_path / "x.npy", draw.standard_normal((nodes, 32), dtype=np.float32))
    np.save(tmp_path / "train_idx.npy", np.arange(0, nodes, 3))
    for result in run_ranks(f"{JOBS}:memory", 2, {"folder": str(tmp_path), "round_bytes": 1 << 20}):
        share, most = result.value
        whole = 8 * edges + 4 * 32 * nodes
        assert most < 2 * share + (16 << 20) < share + whole, (share, most)


def test_mistakes_are_told_on_every_rank() -> None:
    for result in run_ranks(f"{JOBS}:mistakes", 2):
        assert result.value == [
            "DatasetError: random 1: edge_index: node id 20 is outside [0, 20); correct it or num_nodes",
            "DatasetError: random 1: val: node id -1 is outside [0, 20); correct it or num_nodes",
            *result.value[2:3],
            "ValueError: policy 'best' is not known; choose among random, contiguous, ldg, fennel, "
            "multilevel, metis, a .npy file of owners, or give a function",
            "TypeError: policy must be a name or a function, not int",
            *result.value[5:],
        ]
        assert result.value[2].startswith("AgreementError: ranks were given different arguments: data set")
        assert "the policy returned parts 2 to 2; there are 2" in result.value[5]
        assert "not torch.float64" in result.value[6]


@pytest.mark.parametrize(
    ("how", "stage"),
    [("kill", "translating sources"), ("stop", "assigning owners"), ("kill", "reading edges")],
)
def test_a_rank_that_is_lost_is_named(how: str, stage: str) -> None:
    results = run_ranks(
        f"{JOBS}:fault",
        3,
        {"how": how, "stage": stage, "victim": 1, "timeout": 6.0},
        never_end=[1] if how == "stop" else [],
        check=False,
    )
    for result in (results[0], results[2]):
        assert result.code == 0, result.stderr
        assert result.value["error"] == "PeerError" and result.value["ranks"] == [1], result.value
        assert ("is stopped" if how == "stop" else "no longer exists") in result.value["text"]
        assert "partition" in result.value["text"]
