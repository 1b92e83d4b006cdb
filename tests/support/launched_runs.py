"""Training runs on several ranks, each a process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from pyg_batchgnn.data import GeneratorSpec, LinkSplit, generate, hold_out_links, write_folder
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
    return ["train", str(folder), "--run", str(run), *BASE, *map(str, options)]


def assert_ended(seen: list[dict[str, Any]], status: int) -> None:
    assert [one["status"] for one in seen] == [status] * len(seen), [one["err"] for one in seen]


def assert_same_tensors(one: Path, other: Path) -> None:
    expected, found = weights(one), weights(other)
    assert any("exp_avg_sq" in name for name in expected)
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), name


NODES = 120


def write_links(path: Path) -> Path:
    """Writes a graph whose test links have shared negatives; those of validation are drawn."""
    whole = hold_out_links(generate(GeneratorSpec(NODES, degree=8.0, features=12)), 0.1)
    links = whole.edges.links
    shared = torch.randint(NODES, (2, 30), generator=torch.Generator().manual_seed(0))
    links["test"] = LinkSplit(links["test"].index, {}, shared)
    return write_folder(whole, path)


def arguments(folder: Path | str, run: Path, *more: object) -> list[str]:
    fixed = ["train", folder, "--task", "link", *SMALL, "--batch-size", 64, "--dropout", 0, "--run", run]
    return [str(one) for one in (*fixed, "--set", "run.matrix_product=native", *more)]
