"""Figures of a run reach TensorBoard, MLflow and Weights & Biases, also of a run that goes on."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pyg_batchgnn.train import RunLog, TrainError, run_log
from pyg_batchgnn.train.config import LogKind
from tests.support.training_runs import SMALL, batchgnn, weights

RUN = [*SMALL, "--batch-size", "64", "--seed", "5"]


def tensorboard_of(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """The steps and figures in TensorBoard's files, by name."""
    found = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = found.EventAccumulator(str(folder)).Reload()
    return {
        name: [(one.step, one.value) for one in events.Scalars(name)] for name in events.Tags()["scalars"]
    }


def test_tensorboard_has_what_metrics_has(graph_folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert batchgnn("train", graph_folder, "--run", run, *RUN, "--epochs", 2, "--log", "tensorboard") == 0
    assert batchgnn("train", "--resume", run, "--epochs", 3) == 0
    found = tensorboard_of(run / "tensorboard")
    for record in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()):
        epoch = record["epoch"]
        for part in ("train", "val"):
            for name, value in record[part].items():
                assert dict(found[f"{part}/{name}"])[epoch] == pytest.approx(value, rel=1e-6)
        assert dict(found["seconds/forward"])[epoch] == pytest.approx(record["phases"]["forward"], rel=1e-6)
    assert [step for step, _ in found["train/loss"]] == [1, 2, 3]
    result = json.loads((run / "result.json").read_text())
    assert dict(found["test/loss"])[result["best_epoch"]] == pytest.approx(result["test"]["loss"], rel=1e-6)


def test_a_log_changes_no_bit(graph_folder: Path, tmp_path: Path) -> None:
    for kind in ("none", "tensorboard"):
        assert (
            batchgnn("train", graph_folder, "--run", tmp_path / kind, *RUN, "--epochs", 1, "--log", kind) == 0
        )
    expected, found = (weights(tmp_path / kind) for kind in ("none", "tensorboard"))
    assert all(found[name].equal(tensor) for name, tensor in expected.items())
    assert not (tmp_path / "none" / "tensorboard").exists()


def test_a_script_writes_its_own(tmp_path: Path) -> None:
    with RunLog("tensorboard", tmp_path, {"lr": 0.1}) as log:
        log.write({"loss": 0.5, "depth/first": 2}, step=1)
        log.write({"loss": 0.25}, step=2)
    found = tensorboard_of(tmp_path / "tensorboard")
    assert found["loss"] == [(1, 0.5), (2, 0.25)] and found["depth/first"] == [(1, 2.0)]
    log.write({"loss": 1.0}, step=3)  # after its end it takes nothing
    with RunLog(None, tmp_path / "none") as quiet:
        quiet.write({"loss": 0.5}, step=1)
    assert not (tmp_path / "none").exists()


class Broken:
    """A program that takes one figure and then fails."""

    def __init__(self, *_: object) -> None:
        self.taken: list[Mapping[str, float]] = []

    def write(self, figures: Mapping[str, float], step: int) -> None:
        if step > 1:
            raise ConnectionError("the server is gone")
        self.taken.append(figures)

    def close(self) -> None:
        raise AssertionError("it is left alone")


def test_training_goes_on_without_its_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(run_log._SINKS, LogKind.TENSORBOARD, Broken)
    with RunLog("tensorboard", tmp_path) as log:
        log.write({"loss": 1.0}, step=1)
        with pytest.warns(UserWarning, match="the log is lost from step 2 on: the server is gone"):
            log.write({"loss": 1.0}, step=2)
        log.write({"loss": 1.0}, step=3)


def test_a_log_that_does_not_end_well_costs_no_result(
    graph_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Endless(Broken):
        def write(self, figures: Mapping[str, float], step: int) -> None:
            self.taken.append(figures)

        def close(self) -> None:
            raise ConnectionError("the server is gone")

    monkeypatch.setitem(run_log._SINKS, LogKind.TENSORBOARD, Endless)
    run = tmp_path / "run"
    with pytest.warns(UserWarning, match="the log did not end well: the server is gone"):
        assert batchgnn("train", graph_folder, "--run", run, *RUN, "--epochs", 1, "--log", "tensorboard") == 0
    assert (run / "result.json").is_file()


def test_what_is_not_installed_stops_before_training(
    graph_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(run_log._NEEDS, LogKind.WANDB, ("no_such_module", "pip install wandb"))
    assert batchgnn("train", graph_folder, "--run", tmp_path / "run", *RUN, "--log", "wandb") == 2
    said = capsys.readouterr().err
    assert "--log wandb needs the package no_such_module" in said and "pip install wandb" in said
    assert not (tmp_path / "run").exists()


def test_what_does_not_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> Any:
        raise OSError("no space left")

    monkeypatch.setitem(run_log._SINKS, LogKind.TENSORBOARD, refuse)
    with pytest.raises(TrainError, match="--log tensorboard: it did not start: no space left"):
        RunLog("tensorboard", tmp_path)


@pytest.mark.skipif(importlib.util.find_spec("mlflow") is None, reason="needs mlflow")
def test_mlflow_goes_on_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    config = {"model": {"kind": "sage"}, "lr": 0.1}
    with RunLog("mlflow", tmp_path / "run", config) as log:
        log.write({"train/loss": 0.5}, step=1)
    with RunLog("mlflow", tmp_path / "run", config, resumed=1) as log:
        log.write({"train/loss": 0.25}, step=2)
    client = mlflow.MlflowClient()
    number = json.loads((tmp_path / "run" / "log.json").read_text())["mlflow"]
    history = client.get_metric_history(number, "train/loss")
    assert [(one.step, one.value) for one in history] == [(1, 0.5), (2, 0.25)]
    assert client.get_run(number).data.params == {"model.kind": "sage", "lr": "0.1"}


@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="needs wandb")
def test_wandb_writes_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    with RunLog("wandb", tmp_path / "run", {"lr": 0.1}) as log:
        log.write({"train/loss": 0.5}, step=1)
    assert list((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"))
    assert json.loads((tmp_path / "run" / "log.json").read_text())["wandb"]
