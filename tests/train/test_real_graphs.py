"""Training on a real graph reaches the accuracy known for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyg_batchgnn.data import available_datasets
from tests.support.training_runs import batchgnn

FOUND = "cora" in available_datasets()


@pytest.mark.skipif(not FOUND, reason="the folder with cora is not on this machine")
@pytest.mark.parametrize(
    ("model", "fanout", "at_least", "others"),
    [
        ("sage", "15,10,5", 0.74, []),
        ("gcn", "15,10", 0.74, []),
        ("gin", "15,10", 0.62, []),
        ("gat", "15,10", 0.74, []),
        ("sage", "15,10", 0.74, ["--precision", "bfloat16"]),
    ],
)
def test_cora(model: str, fanout: str, at_least: float, others: list[str], tmp_path: Path) -> None:
    """BatchGNN's settings with smaller minibatches, for cora has 140 training nodes."""
    run = tmp_path / "run"
    options = [
        "--model",
        model,
        "--fanout",
        fanout,
        "--batch-size",
        64,
        "--hidden",
        64,
        "--epochs",
        12,
        "--threads",
        1,
        *others,
    ]
    status = batchgnn("train", "cora", "--run", run, *options, "--set", "run.malloc=default")
    assert status == 0
    assert json.loads((run / "result.json").read_text())["test"]["accuracy"] > at_least
