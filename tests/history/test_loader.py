"""The loader with historical embeddings."""

from __future__ import annotations

import pytest

from tests.support.ranks import run_ranks
from tests.support.tiers import in_all

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
