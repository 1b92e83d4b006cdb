"""A run that was stopped or killed and resumed ends with the very same bits as one that was left alone."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch

from pyg_batchgnn.train.checkpoint import Checkpoint

from .runs import SMALL, batchgnn, records, start_process, weights

EPOCHS = 3
STEPS = 148
RUN = [*SMALL, "--batch-size", "8", "--epochs", str(EPOCHS), "--seed", "5", "--macrobatch", "16"]


@pytest.fixture(scope="module")
def undisturbed(graph_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nothing stopped."""
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    assert batchgnn("train", graph_folder, "--run", run, *RUN) == 0
    return run


@pytest.fixture(scope="module")
def undisturbed_gin(graph_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of a model with running statistics."""
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    assert batchgnn("train", graph_folder, "--run", run, "--model", "gin", *RUN) == 0
    return run


def _wait_for_first_epoch(process: subprocess.Popen[str], run: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        metrics = run / "metrics.jsonl"
        if metrics.is_file() and metrics.read_text().count("\n") >= 1:
            return
        time.sleep(0.01)
    pytest.fail(f"no epoch finished: {process.communicate()}")


def _assert_same_run(left: Path, right: Path) -> None:
    expected, found = weights(left), weights(right)
    assert expected.keys() == found.keys()
    assert any("best" in name for name in found)
    assert any("exp_avg_sq" in name for name in found)
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), name
    assert records(left) == records(right)


@pytest.mark.parametrize(
    ("model", "signal_number"), [("sage", signal.SIGINT), ("gin", signal.SIGTERM)], ids=["SIGINT", "SIGTERM"]
)
def test_stopped_in_the_middle_of_an_epoch(
    request: pytest.FixtureRequest,
    graph_folder: Path,
    tmp_path: Path,
    model: str,
    signal_number: signal.Signals,
) -> None:
    expected = request.getfixturevalue("undisturbed" if model == "sage" else "undisturbed_gin")
    run = tmp_path / "run"
    process = start_process("train", graph_folder, "--run", run, "--model", model, *RUN)
    _wait_for_first_epoch(process, run)
    time.sleep(0.2)
    process.send_signal(signal_number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err == ""
    assert f"go on with: batchgnn train --resume {run}" in out

    progress = Checkpoint.load(run / "checkpoint.safetensors").progress
    assert 0 < progress.step < STEPS, "the signal was meant to come in the middle of an epoch"
    assert progress.epoch < EPOCHS
    assert batchgnn("train", "--resume", run) == 0
    _assert_same_run(expected, run)


def test_killed_and_resumed_from_the_last_epoch(
    undisturbed: Path, graph_folder: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    process = start_process("train", graph_folder, "--run", run, *RUN)
    _wait_for_first_epoch(process, run)
    time.sleep(0.2)
    process.kill()
    process.communicate(timeout=60)
    assert batchgnn("train", "--resume", run) == 0
    _assert_same_run(undisturbed, run)


def test_resuming_may_lengthen_a_run_and_change_its_resources(
    undisturbed: Path, graph_folder: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    short = [*RUN, "--epochs", "1"]
    assert batchgnn("train", graph_folder, "--run", run, *short) == 0
    longer = ["--epochs", EPOCHS, "--macrobatch", 5, "--fetch", 2, "--prefetch", 1]
    assert batchgnn("train", "--resume", run, *longer) == 0
    _assert_same_run(undisturbed, run)


def test_resuming_a_finished_run_changes_nothing(undisturbed: Path) -> None:
    run = undisturbed
    before, lines = weights(run), records(run)
    assert batchgnn("train", "--resume", run) == 0
    after = weights(run)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert records(run) == lines


def test_results_of_an_epoch_may_not_be_changed(
    undisturbed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert batchgnn("train", "--resume", undisturbed, "--lr", 0.1) == 2
    message = capsys.readouterr().err
    assert "optimiser.learning_rate (0.003 is now 0.1)" in message
    assert message.count("\n") == 1
