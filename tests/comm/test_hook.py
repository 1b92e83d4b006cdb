"""Gradients: weighted by seeds, the same bits after a resume, named when a peer dies."""

from __future__ import annotations

import pytest

from tests.support.ranks import run_ranks
from tests.support.tiers import in_all

JOBS = "tests.comm.job_hook"


@pytest.mark.parametrize("ranks", [*in_all(2), 3, *in_all(4)])
def test_weights_are_the_same_after_a_resume_and_on_every_rank(ranks: int) -> None:
    seeds = [[4, 7, 1, 3], [5, 0, 2, 2], [0, 6, 1, 1]]
    straight = run_ranks(f"{JOBS}:train", ranks, {"steps": 6, "resume_at": -1, "seeds": seeds})
    resumed = run_ranks(f"{JOBS}:train", ranks, {"steps": 6, "resume_at": 3, "seeds": seeds})
    for result in (*straight, *resumed):
        assert result.value == straight[0].value


def test_a_peer_killed_before_its_backward_pass_is_named() -> None:
    results = run_ranks(f"{JOBS}:killed_in_training", 3, {"timeout": 6.0}, check=False)
    for result in (results[0], results[2]):
        assert result.code == 0, result.stderr
        assert result.value["error"] == "PeerError" and result.value["ranks"] == [1]
        assert "gradients" in result.value["text"] and result.value["seconds"] < 6.0
