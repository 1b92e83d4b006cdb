"""Typed graphs are partitioned as the obvious partitioner does it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Dataset
from pyg_batchgnn.partition import partition_parts
from tests.partition.job_partition import assert_same
from tests.partition.job_typed import owners_everywhere, owners_of
from tests.support.graph_strategies import fixed
from tests.support.ranks import run_ranks
from tests.support.reference_partition import split_dataset
from tests.support.typed_datasets import typed_datasets

JOBS = "tests.partition.job_typed"


@pytest.mark.parametrize(("ranks", "round_bytes"), [(2, 1 << 24), (4, 3_000)])
def test_parts_equal_those_of_the_obvious_partitioner(ranks: int, round_bytes: int) -> None:
    run_ranks(f"{JOBS}:equals_the_obvious", ranks, {"rounds": [round_bytes]})


@pytest.mark.parametrize("ranks", [1, 3])
def test_streamed_parts_equal_those_of_the_obvious_partitioner(ranks: int) -> None:
    run_ranks(f"{JOBS}:streams", ranks)


def test_the_parts_do_not_depend_on_how_many_ranks_read() -> None:
    run_ranks(f"{JOBS}:any_number_of_parts", 2)


def test_streaming_cuts_fewer_edges_and_balances_every_type() -> None:
    found = run_ranks(f"{JOBS}:compare_policies", 2)[0].value
    for policy in ("ldg", "fennel"):
        assert found[policy]["cut"] < 0.6 * found["random"]["cut"], found
        assert max(found[policy]["user"], found[policy]["item"]) < 1.1, found
    assert found["contiguous"]["user"] < 1.1, found


@fixed(40)
@given(typed_datasets(), st.integers(1, 4), st.sampled_from(["random", "contiguous", "ldg", "fennel"]))
def test_random_graphs(dataset: Dataset, parts: int, policy: str) -> None:
    with Communicator.create("alone") as comm:
        found = partition_parts(dataset, policy, parts, comm=comm, seed=3)
        owners = owners_everywhere(found, comm)
    if policy in ("random", "contiguous"):
        for owner, wanted in zip(owners, owners_of(dataset, policy, parts, 3), strict=True):
            assert owner.tolist() == wanted.tolist()
    for part in found:
        part.check()
        assert_same(part, split_dataset(dataset, owners, parts, part.number))
