"""The partitioner equals the obvious one, for any number of ranks and any size of rounds."""

from __future__ import annotations

import pytest
import torch

from pyg_batchgnn.partition import Multilevel
from pyg_batchgnn.partition.limits import Balance
from tests.partition import job_partition
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
    ("slack", "says"),
    [
        (0.9, "'train' must be at least 1, not 0.9; 1.05 allows"),
        (float("nan"), "'train' must be at least 1, not nan; 1.05 allows"),
        (float("inf"), "'train' must be finite, not inf; leave out a load"),
    ],
)
def test_a_slack_is_a_finite_number_of_at_least_one(slack: float, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Multilevel({"nodes": 1.05, "train": slack})


def test_no_limit_is_more_than_there_is() -> None:
    total = torch.tensor([10, 10, 10, 0])
    balance = Balance.of(4, total, torch.tensor([1.0, 1.5, 1e300, 1e300], dtype=torch.float64))
    assert balance.limit.tolist() == [3, 3, 10, 0]
