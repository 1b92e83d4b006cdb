"""The loader with historical embeddings."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.ranks import run_ranks
from tests.support.tiers import in_all

# Loader ###########################################################################################

JOBS = "tests.history.job_history"
REFUSED = [
    "use export='native'",
    "use schedule='local'",
    "leave feature_cache out",
    "edge attributes are not carried",
    "uniformly within a part",
    "caches are of another graph",
    "one process owns all of them",
    "make another one with Communicator.create",
    "holds the whole topology",
    "homogeneous graphs",
    "HaloPass(minibatch)",
    "has no halo nodes",
    "was fetched from there",
    "GCNConv does not support historical embeddings",
]


def test_one_rank_trains_as_in_the_exact_mode() -> None:
    run_ranks(f"{JOBS}:alone", 1)


@pytest.mark.parametrize("ranks", [*in_all(2), 3])
def test_minibatches_have_the_attributes_of_own_nodes(ranks: int) -> None:
    run_ranks(f"{JOBS}:loaded", ranks)


def test_what_is_not_possible_is_refused() -> None:
    for result in run_ranks(f"{JOBS}:refusals", 2):
        for found, wanted in zip(result.value, REFUSED, strict=True):
            assert wanted in found


# Limits ###########################################################################################


@pytest.mark.parametrize(("graphs", "hosts"), [*in_all((1, [0])), (5, [0, 1]), (2, [0, 1, 1])], ids=str)
def test_full_caches_are_the_exact_mode(graphs: int, hosts: Sequence[int]) -> None:
    run_ranks(f"{JOBS}:full_caches", len(hosts), {"graphs": graphs}, hosts=hosts)


def test_pushes_are_bounded_and_counted() -> None:
    for result in run_ranks(f"{JOBS}:traffic", 3, {"most": 4, "delay": 2}, hosts=[0, 1, 2]):
        assert 0 < result.value["rates"][0] < 1 and result.value["left"] > 0


@pytest.mark.parametrize("stop", [3, 4, 6])
def test_runs_repeat_and_resume(stop: int) -> None:
    run_ranks(f"{JOBS}:repeated", 2, {"stop": stop})
