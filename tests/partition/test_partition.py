"""The partitioner equals the obvious one, for any number of ranks and any size of rounds."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.partition import Streaming, partition_parts
from pyg_batchgnn.partition.limits import Balance
from tests.partition import job_partition
from tests.partition.job_partition import graph
from tests.support.ranks import run_ranks
from tests.support.tiers import in_all


def test_streaming_keeps_all_limits_or_says_why_not() -> None:
    for nodes, worst, said in run_ranks(job_partition.several_limits, 2)[0].value:
        if nodes == 600:  # the hub
            assert [one for one in said if "in-edges, more than 1.05: one node alone" in one], said
            assert worst["nodes"] <= 1.05, worst
        else:  # communities
            assert said == [] and worst.pop("val") <= 1.1 and max(worst.values()) <= 1.05, (worst, said)


def test_mistakes_are_told_on_every_rank() -> None:
    for result in run_ranks(job_partition.mistakes, 2):
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
        colour, targets, file = result.value[7:]
        assert colour.startswith("ValueError: cannot balance 'colour': it is no split and no node attribute")
        assert targets.startswith("ValueError: cannot balance 'targets': it has shape")
        assert file.startswith("DatasetError:") and "owners.npy" in file


@pytest.mark.parametrize(
    ("how", "stage"),
    [("kill", "translating sources"), ("stop", "assigning owners"), *in_all(("kill", "reading edges"))],
)
def test_a_rank_that_is_lost_is_named(how: str, stage: str) -> None:
    results = run_ranks(
        job_partition.fault,
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


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("slack", 0.9, "'train' must be finite and at least 1, not 0.9; 1.05 allows"),
        ("slack", torch.ones(2), r"not tensor\(\[1"),
        ("slack", float("nan"), "not nan"),
        ("slack", float("inf"), "not inf; .* leave out a load"),
        ("passes", 1e308, r"passes must be an int, got float; give int\(passes\)"),
        ("parts", 2**31, "parts must be 1 to 100000, not 2147483648"),
        ("parts", 1e308, "parts must be an int, got float"),
        ("seed", torch.tensor(3), "seed must be an int, got Tensor"),
    ],
)
def test_arguments_that_cannot_be(name: str, value: Any, says: str) -> None:
    given = {"slack": 1.1, "passes": 1, "parts": 2, "seed": 0, name: value}
    with Communicator.create("alone") as comm, pytest.raises((TypeError, ValueError), match=says):
        policy = Streaming({"nodes": 1.05, "train": given.pop("slack")}, passes=given.pop("passes"))
        partition_parts(graph(1, 30, 100), policy, **given, comm=comm)


def test_no_limit_is_more_than_there_is() -> None:
    total = torch.tensor([10, 10, 10, 0])
    balance = Balance.of(4, total, torch.tensor([1.0, 1.5, 1e300, 1e300], dtype=torch.float64))
    assert balance.limit.tolist() == [3, 3, 10, 0]
