"""Embedding tables over ranks equal those of one process; counts are exact; runs repeat."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.ranks import run_ranks
from tests.support.tiers import in_all

# Ranks ############################################################################################

JOBS = "tests.embed.job_ranks"


@pytest.mark.parametrize("ranks", [*in_all(1), 2, *in_all(4)])
def test_training_equals_one_process(ranks: int) -> None:
    run_ranks(f"{JOBS}:equals_one_process", ranks)


@pytest.mark.parametrize("ranks", [*in_all(1, 2), 3])
def test_gradients_of_several_batches_are_added(ranks: int) -> None:
    run_ranks(f"{JOBS}:several_batches_a_step", ranks)


@pytest.mark.parametrize("ranks", [*in_all(2), 3])
def test_ids_travel_once_per_macrobatch_and_rows_twice_per_step(ranks: int) -> None:
    run_ranks(f"{JOBS}:counters", ranks)


def test_runs_repeat_resume_and_continue_on_other_ranks(tmp_path: Path) -> None:
    for result in run_ranks(f"{JOBS}:repeats", 3, {"folder": str(tmp_path)}):
        assert result.value == ["end", "rows.npy", "saved"]
    for ranks in (3, 1, 2):
        run_ranks(f"{JOBS}:continues", ranks, {"folder": str(tmp_path)})


def test_gradients_are_weighed() -> None:
    run_ranks(f"{JOBS}:weights", 3)


def test_all_nodes_are_inferred_from_learned_rows() -> None:
    run_ranks(f"{JOBS}:inference", 2)


@pytest.mark.parametrize(
    ("how", "words"), [("kill", "no longer exists"), ("raise", "raised ValueError: the disk is full")]
)
def test_a_rank_that_fails_is_named(how: str, words: str) -> None:
    results = run_ranks(f"{JOBS}:fault", 3, {"how": how}, check=False)
    for result in (results[0], results[2]):
        assert 1 in result.value["ranks"] and words in result.value["text"]


def test_what_cannot_be_is_refused() -> None:
    run_ranks(f"{JOBS}:refusals", 2)


@pytest.mark.parametrize("ranks", [*in_all(2), 3])
def test_rows_of_all_types_travel_together(ranks: int) -> None:
    run_ranks(f"{JOBS}:loaders", ranks)


# Example ##########################################################################################


def test_it_learns_over_ranks() -> None:
    first, second = run_ranks("tests.embed.job_ranks:run", 2, timeout=120.0)
    form = r"epoch \d  loss (\d\.\d{4})  test accuracy (\d\.\d{4})\n"
    losses, accuracies = zip(*re.findall(form, first.value), strict=True)
    assert len(losses) == 4 and float(losses[-1]) < 0.7 * float(losses[0])
    assert float(accuracies[-1]) > 0.6 and second.value == ""
