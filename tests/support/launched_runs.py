"""Training runs on several ranks, each a process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tests.support.ranks import run_ranks
from tests.support.training_runs import SMALL, weights

RUN = "tests.train.job_ranks:run"
BASE = [*SMALL, "--batch-size", "48", "--epochs", "2", "--seed", "5", "--set", "run.matrix_product=native"]


def launch(
    ranks: int, *commands: dict[str, Any], hosts: Sequence[int] | None = None, timeout: float = 100.0
) -> list[list[dict[str, Any]]]:
    """Runs commands on several ranks; returns what each rank saw, by command, then by rank."""
    results = run_ranks(RUN, ranks, {"commands": list(commands)}, hosts=hosts, timeout=timeout)
    return [list(seen) for seen in zip(*(result.value for result in results), strict=True)]


def train(folder: Path | str, run: Path, *options: object) -> list[str]:
    """Returns the arguments of a training run on a small graph."""
    return ["train", str(folder), "--run", str(run), *BASE, *map(str, options)]


def assert_ended(seen: list[dict[str, Any]], status: int) -> None:
    """Asserts that every rank's command ended with a status."""
    assert [one["status"] for one in seen] == [status] * len(seen), [one["err"] for one in seen]


def assert_same_tensors(one: Path, other: Path) -> None:
    """Asserts that the checkpoints of two runs hold the same bits."""
    expected, found = weights(one), weights(other)
    assert any("exp_avg_sq" in name for name in expected)
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), name
