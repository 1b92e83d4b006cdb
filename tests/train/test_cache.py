"""Training with an aggregation cache: alone, over ranks, stopped and resumed, kept in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyg_batchgnn.data import GeneratorSpec, generate_folder
from tests.support.launched_runs import assert_ended, assert_same_tensors, launch, train
from tests.support.tiers import ALL, in_all
from tests.support.training_runs import batchgnn, mistake, records

CACHED = ["--cache", "aggregation"]


@pytest.mark.parametrize(
    ("kind", "evaluated_with", "options"),
    [
        *in_all(("sage", False, []), ("gcn", True, ["--evaluate-with-cache"])),
        ("gin", True, ["--precision", "bfloat16"]),
        ("gin", False, ["--evaluate-without-cache"]),
    ],
)
def test_a_run_and_its_predictions(
    graph_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    evaluated_with: bool,
    options: list[str],
) -> None:
    run = tmp_path / "run"
    assert batchgnn(*train(graph_folder, run, "--model", kind, *CACHED, *options)) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "replace the last hop's 3" in out and " MiB on the first rank" in out
    assert f"evaluation {'with them' if evaluated_with else 'without'}" in out
    result = json.loads((run / "result.json").read_text())
    assert result["test"]["accuracy"] > 0.5
    assert batchgnn("predict", run, "--nodes", "test", "--out", tmp_path / "out") == 0
    assert json.loads((tmp_path / "out" / "META.json").read_text())["scores"] == result["test"]
    assert np.load(tmp_path / "out" / "predictions.npy").size


def test_ranks_train_and_resume_bit_for_bit(graph_folder: Path, tmp_path: Path) -> None:
    options = ["--model", "gcn", *CACHED, "--schedule", "global", "--epochs", 1]
    options += ["--cache-folder", tmp_path / "kept"]
    others = [*options, "--partition", "ldg", "--hybrid", "--prefetch", 1]
    local = ["--model", "sage", *CACHED, "--schedule", "local", "--evaluate-with-cache", "--epochs", 1]
    straight, broken, other = tmp_path / "straight", tmp_path / "broken", tmp_path / "other"
    commands: list[dict[str, Any]] = [
        {"arguments": train(graph_folder, straight, *options)},
        {"arguments": train(graph_folder, other, *others)},
    ]
    more: list[dict[str, Any]] = [
        {"arguments": train(graph_folder, broken, *options), "fault": [1, 5, "SIGINT"]},
        {"arguments": ["train", "--resume", str(broken)]},
        {"arguments": train(graph_folder, tmp_path / "sage", *local)},
    ]
    whole, again, *rest = launch(2, *commands, *(more if ALL else []))
    assert_ended(whole + again, 0)
    assert "built in" in whole[0]["out"] and "read in" in again[0]["out"]
    assert_same_tensors(straight, other)
    if rest:
        assert_ended(rest[0], 130)
        assert_ended(rest[1] + rest[2], 0)
        assert_same_tensors(straight, broken)
        assert records(straight) == records(broken)


def test_a_kept_cache_of_another_graph_is_refused(
    graph_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept"
    options = [*CACHED, "--cache-folder", kept, "--epochs", 1]
    assert batchgnn(*train(graph_folder, tmp_path / "one", *options)) == 0
    assert batchgnn("verify", kept) == 0
    spec = GeneratorSpec(nodes=2000, seed=3, degree=8.0, classes=4, features=16, signal=0.1)
    other = generate_folder(spec, tmp_path / "other")
    said = mistake(capsys, *train(other, tmp_path / "two", *options))
    assert f"{kept}: the aggregation cache was made of other data" in said
    said = mistake(capsys, *train(graph_folder, tmp_path / "three", *options, "--model", "gin"))
    assert "aggregates by mean, but sum is wanted" in said
    (seen,) = launch(2, {"arguments": train(other, tmp_path / "four", *options)})
    assert_ended(seen, 2)
