"""A run that was stopped or killed and resumed ends with the bits of one left alone."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pyg_batchgnn import ops
from pyg_batchgnn.train import start
from pyg_batchgnn.train.checkpoint import Checkpoint
from tests.support.launched_runs import RUN as PROGRAM
from tests.support.launched_runs import assert_same_tensors, launch, train
from tests.support.leftovers import nothing_is_left
from tests.support.programs import real_programs
from tests.support.ranks import run_ranks
from tests.support.tiers import all_only, in_all
from tests.support.training_runs import SMALL, batchgnn, mistake, records, weights

EPOCHS = 3
STEPS = 18
MIDDLE = STEPS + 5  # of the second epoch, counted from the first
RUN = [*SMALL, "--batch-size", "64", "--epochs", str(EPOCHS), "--seed", "5", "--macrobatch", "8"]
RUN += ["--set", "run.matrix_product=native"]
KINDS = {
    "sage": ["--model", "sage"],
    "gin": ["--model", "gin"],  # with running statistics
    "torch": ["--set", "run.matrix_product=torch"],
}


@pytest.fixture(scope="module")
def undisturbed_runs(graph_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folders of runs that nothing stopped, each made when it is first asked for."""
    folder = tmp_path_factory.mktemp("undisturbed")

    def run_of(kind: str) -> Path:
        run = folder / kind
        if not run.exists():
            assert batchgnn("train", graph_folder, "--run", run, *RUN, *KINDS[kind]) == 0
        return run

    return run_of


@pytest.fixture(scope="module")
def undisturbed(undisturbed_runs: Callable[[str], Path]) -> Path:
    return undisturbed_runs("sage")


def stopped(name: str, *arguments: object) -> list[dict[str, Any]]:
    """Runs a command in a process that gets a signal in the middle of the second epoch."""
    (seen,) = launch(1, {"arguments": [*map(str, arguments)], "fault": [0, MIDDLE, name]})
    return seen


def _assert_same_run(left: Path, right: Path) -> None:
    assert_same_tensors(left, right)
    assert any("best" in name for name in weights(right)) and records(left) == records(right)


@pytest.mark.parametrize(
    ("kind", "signal_name", "changes"),
    [
        ("gin", "SIGTERM", ["--threads", 2]),  # native layers: the same bits on any number
        *in_all(("sage", "SIGINT", []), ("torch", "SIGINT", [])),
    ],
)
def test_stopped_in_the_middle_of_an_epoch(
    undisturbed_runs: Callable[[str], Path],
    graph_folder: Path,
    tmp_path: Path,
    kind: str,
    signal_name: str,
    changes: list[object],
) -> None:
    expected = undisturbed_runs(kind)
    run = tmp_path / "run"
    (ended,) = stopped(signal_name, "train", graph_folder, "--run", run, *RUN, *KINDS[kind])
    assert (ended["status"], ended["err"]) == (130, "")
    assert f"continue with: batchgnn train --resume {run}" in ended["out"]

    progress = Checkpoint.load(run / "checkpoint.safetensors").progress
    assert 0 < progress.step < STEPS, "the signal was meant to come in the middle of an epoch"
    assert progress.epoch == 1
    assert batchgnn("train", "--resume", run, *changes) == 0
    _assert_same_run(expected, run)


def test_killed_and_resumed_from_the_last_epoch(
    undisturbed: Path, graph_folder: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    command = {"arguments": [*map(str, ["train", graph_folder, "--run", run, *RUN])]}
    given = {"commands": [{**command, "fault": [0, MIDDLE, "SIGKILL"]}]}
    (ended,) = run_ranks(PROGRAM, 1, given, check=False)
    assert ended.code == -signal.SIGKILL, ended.stderr
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


@pytest.mark.parametrize(
    "moves",
    [
        ["multisteplr", "--lr-schedule-options", "milestones=5:30,gamma=0.5", "--lr-schedule-every", "step"],
        *in_all(["onecyclelr", "--lr-schedule-options", "max_lr=0.01,total_steps=3"]),
    ],
)
def test_a_schedule_goes_on(moves: list[str], graph_folder: Path, tmp_path: Path) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    chosen = [*RUN, "--optimizer", "adamw", "--clip-norm", 0.1, "--threads", 1, "--lr-schedule", *moves]
    assert batchgnn("train", graph_folder, "--run", whole, *chosen) == 0
    (ended,) = stopped("SIGINT", "train", graph_folder, "--run", run, *chosen)
    assert ended["status"] == 130, ended["err"]
    assert batchgnn("train", "--resume", run, "--threads", 2) == 0
    _assert_same_run(whole, run)


def test_resuming_may_change_the_learning_rate(
    graph_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    halves = ["--lr-schedule", "exponentiallr", "--lr-schedule-options", "gamma=0.5"]
    assert batchgnn("train", graph_folder, "--run", run, *RUN, *halves, "--epochs", 1) == 0
    for epochs, rate in ((2, 0.3), (3, 0.3)):
        capsys.readouterr()
        assert batchgnn("train", "--resume", run, "--epochs", epochs, "--lr", rate) == 0
        said = "note    the learning rate was 0.003 and is 0.3 from here on" in capsys.readouterr().out
        assert said == (epochs == 2)
    rates = [json.loads(line)["train"]["learning_rate"] for line in (run / "metrics.jsonl").open()]
    assert rates == pytest.approx([0.003, 0.15, 0.075])


def test_resuming_a_finished_run_changes_nothing(undisturbed: Path) -> None:
    run = undisturbed
    before, lines = weights(run), records(run)
    assert batchgnn("train", "--resume", run) == 0
    after = weights(run)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert records(run) == lines


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("sage", ["--weight-decay", 0.1], "--weight-decay (0.0 is now 0.1)"),
        ("sage", ["--optimizer", "sgd"], "--optimizer ('adam' is now 'sgd')"),
        ("sage", ["--precision", "bfloat16"], "--precision ('float32' is now 'bfloat16')"),
        ("sage", ["--set", "run.matrix_product=torch"], "run.matrix_product ('native' is now 'torch')"),
        ("torch", ["--threads", 2], "--threads (1 is now 2)"),
    ],
)
def test_results_of_an_epoch_may_not_be_changed(
    undisturbed_runs: Callable[[str], Path],
    kind: str,
    change: list[object],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = undisturbed_runs(kind)
    capsys.readouterr()
    assert message in mistake(capsys, "train", "--resume", run, *change)


def test_a_level_of_products_that_a_processor_has_not(
    graph_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It stops the resumed run, unless another level is asked for."""
    run, before = tmp_path / "run", ops.bfloat16_level()
    half = [*RUN, "--precision", "bfloat16", "--epochs", 1]
    assert batchgnn("train", graph_folder, "--run", run, *half) == 0
    config = json.loads((run / "config.json").read_text())
    assert config["run"]["bfloat16_products"] == before, "what was open is decided"
    monkeypatch.setattr(start, "bfloat16_levels", lambda: ("widened",))
    on_pairs = [*half, "--bfloat16-products", "pairs"]
    error = mistake(capsys, "train", graph_folder, "--run", tmp_path / "missing", *on_pairs)
    assert "this processor has only widened" in error
    config["run"]["bfloat16_products"] = "pairs"  # as a run of another processor has it
    (run / "config.json").write_text(json.dumps(config))
    assert batchgnn("train", "--resume", run, "--epochs", 2) == 2
    assert "--bfloat16-products widened, whose results have other bits" in capsys.readouterr().err
    try:
        for epochs, level in enumerate(("widened", "auto"), start=2):
            (run / "config.json").write_text(json.dumps(config))
            resumed = ["--resume", run, "--epochs", epochs, "--bfloat16-products", level]
            assert batchgnn("train", *resumed) == 0
            assert "the run goes on with other bits" in capsys.readouterr().out
            assert ops.bfloat16_level() == "widened"
            written = json.loads((run / "config.json").read_text())
            assert written["run"]["bfloat16_products"] == "widened"
    finally:
        ops.set_bfloat16_level(before)


RESTARTS_RUN = ["--epochs", 3, "--batch-size", 64]
RESTARTS_STEPS = 9  # of an epoch


@all_only
def test_a_lost_rank_costs_no_bit(graph_folder: Path, tmp_path: Path) -> None:
    """torchrun starts the ranks again when the second one was killed in the second epoch."""
    straight, run = tmp_path / "straight", tmp_path / "run"
    (seen,) = launch(2, {"arguments": train(graph_folder, straight, *RESTARTS_RUN)})
    assert {one["status"] for one in seen} == {0}
    arguments = train(graph_folder, run, *RESTARTS_RUN, "--resume", "auto")
    arguments[arguments.index("--run")] = "--run-folder"
    command = ["torchrun", "--nproc-per-node=2", "--max-restarts=1", "--standalone"]
    command += ["--monitor-interval=0.1", "-m", "tests.support.signalled_run"]
    command += ["SIGKILL", str(RESTARTS_STEPS + 4), "1", *arguments]
    folders = {name: str(tmp_path / name) for name in ("TMPDIR", "PIDS")}
    for folder in folders.values():
        Path(folder).mkdir()
    environment = {**os.environ, **real_programs(), **folders}
    with nothing_is_left():
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr
    assert re.search(r"batchgnn: rank 0: .*no longer exists", ended.stderr), ended.stderr
    assert "resumed after" in ended.stdout
    assert "Traceback" not in ended.stderr.split("torch/distributed/elastic")[0]
    workers = [path.name for path in (tmp_path / "PIDS").iterdir()]
    assert len(workers) == 4 and not any(Path("/proc", pid).exists() for pid in workers)
    temporary = [path.name for path in (tmp_path / "TMPDIR").iterdir()]
    left = [name for name in temporary if not name.startswith("torchelastic_")]
    assert not left, "all temporary files but torchrun's own folder of logs are removed"
    assert_same_tensors(straight, run)
