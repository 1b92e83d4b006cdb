"""The files of a run: folder, records of epochs, checkpoint and logs."""

from __future__ import annotations

import errno
import importlib.util
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from pyg_batchgnn.data import Dataset, DatasetError
from pyg_batchgnn.train import RunLog, run_folder
from pyg_batchgnn.train.checkpoint import Checkpoint, RankCheckpoint, RunProgress, parse_values, save_values
from pyg_batchgnn.train.config.choices import LogKind
from pyg_batchgnn.train.config.train_config import TrainConfig
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.run_folder import (
    EpochRecord,
    RunFolder,
    append_record,
    keep_epochs,
    read_records,
    replacing,
)
from pyg_batchgnn.train.training_data import fingerprint_dataset
from tests.support.tiny_datasets import flip_byte
from tests.support.training_runs import SMALL, batchgnn, weights


def test_a_full_disk_is_named_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_text("the one before")
    with (
        pytest.raises(DatasetError, match=r"checkpoint: cannot be written \(No space left on device\); free"),
        replacing(path) as temporary,
    ):
        temporary.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert path.read_text() == "the one before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_run_that_was_killed_before_it_had_written_anything_starts_anew(tmp_path: Path) -> None:
    (tmp_path / ".config.json.123.tmp").write_text("{")
    RunFolder(tmp_path).clear()
    assert list(tmp_path.iterdir()) == []
    RunFolder.create(tmp_path, "anything")


@pytest.mark.parametrize("names", [["notes.txt", ".config.json.1.tmp"], [".mine.tmp"]])
def test_a_folder_that_holds_something_else_is_left_alone(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).touch()
    RunFolder(tmp_path).clear()
    assert {path.name for path in tmp_path.iterdir()} == set(names)
    with pytest.raises(TrainError, match="is not empty; give another folder"):
        RunFolder.create(tmp_path, "anything")


def record(epoch: int, val_accuracy: float | None = 0.5) -> EpochRecord:
    val = None if val_accuracy is None else {"loss": 0.4, "accuracy": val_accuracy}
    train = {"loss": 1 / 3, "accuracy": 0.1}
    return EpochRecord(epoch, train, val, 2.0, 2.0 * epoch, 10, 1000, 5000, {"forward": 1.0})


def test_records_go_there_and_back(tmp_path: Path) -> None:
    """Epochs that a resumed run repeats, and a line that a crash cut off, are left out."""
    path = tmp_path / "metrics.jsonl"
    assert read_records(path) == []
    written = [record(1), record(2, None), record(3)]
    for one in written:
        append_record(path, one)
    assert read_records(path) == written and path.read_text().count("\n") == 3
    assert keep_epochs(path, 2) == read_records(path) == written[:2]
    path.write_text(path.read_text() + '{"epoch": 3, "lo')
    assert keep_epochs(path, 5) == written[:2]
    append_record(path, record(3))
    assert read_records(path) == written


@pytest.mark.parametrize("line", ["{", "3", '{"epoch": 1}'])
def test_a_foreign_line_is_an_error(line: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(TrainError, match="line 1 is not the record of an epoch"):
        read_records(path)


VALUES = {
    "tensors": [torch.arange(5), {"deep": torch.randn(3, 2).bfloat16()}],
    "empty": torch.empty(0, 4),
    "scalar": torch.tensor(2.5),
    "plain": {"text": "x", "none": None, "list": [1, 2.5, True]},
}


def _file(tmp_path: Path) -> Path:
    path = tmp_path / "values.safetensors"
    save_values(path, "kind", 1, VALUES)
    return path


def _truncate(path: Path, keep: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "no such checkpoint"),
        (lambda path: path.write_bytes(b""), "truncated, or not a checkpoint"),
        (lambda path: path.write_bytes(b"\x80\x04 something pickled"), "truncated, or not a checkpoint"),
        (lambda path: _truncate(path, 0.3), "truncated, or not a checkpoint"),
        (lambda path: _truncate(path, 0.99), "truncated, or not a checkpoint"),
        (flip_byte, "damaged, the checksum of .* does not match"),
        (lambda path: save_file({"a": torch.ones(1)}, path), "not a kind of this program"),
        (lambda path: save_values(path, "kind", 2, VALUES), "has format 2, this program reads 1"),
        (lambda path: save_file({}, path, {"kind": "kind", "version": "1"}), "its header is damaged"),
        (
            lambda path: path.write_bytes(path.read_bytes().replace(b"2.5,", b"2.7,")),
            "its values does not match",
        ),
        (
            lambda path: path.write_bytes(path.read_bytes().replace(b'"none', b'"nine')),
            "its values does not match",
        ),
    ],
)
def test_damage_is_noticed(damage: object, message: str, tmp_path: Path) -> None:
    path = _file(tmp_path)
    damage(path)  # type: ignore[operator]
    with pytest.raises(TrainError, match=message) as caught:
        parse_values(path, None, "kind", 1)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def _checkpoint(dataset: Dataset) -> Checkpoint:
    model = nn.Linear(3, 2)
    optimiser = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimiser.step()
    weights = model.state_dict()
    progress = RunProgress(epoch=2, step=7, loss=0.1 + 0.2, best_epoch=1)
    places = [{"epoch": 2, "batches": 7}, {"epoch": 2, "batches": 7}]
    ranks = [RankCheckpoint(place, torch.arange(3.0).double() / 7, {"forward": 1.5}, {}) for place in places]
    found = fingerprint_dataset(dataset)
    return Checkpoint(TrainConfig(), found, progress, weights, weights, optimiser.state_dict(), ranks)


def test_a_checkpoint_goes_there_and_back(small_graph: Dataset, tmp_path: Path) -> None:
    path, written = tmp_path / "checkpoint", _checkpoint(small_graph)
    written.save(path)
    length = int.from_bytes(path.read_bytes()[:8], "little")
    header = json.loads(path.read_bytes()[8 : 8 + length])
    assert set(header) - {"__metadata__"} == set(load_file(path)), "no pickle is involved"
    found = Checkpoint.load(path)
    assert (found.config, found.progress) == (written.config, written.progress)
    for mine, theirs in zip(found.ranks, written.ranks, strict=True):
        assert torch.equal(mine.running, theirs.running)
        assert replace(mine, running=theirs.running) == theirs
    found.check_dataset(path, fingerprint_dataset(small_graph))
    model = nn.Linear(3, 2)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.5)
    found.restore_model(path, model, found.model)
    found.restore_optimiser(path, optimiser)
    for name, value in model.state_dict().items():
        assert torch.equal(value, written.model[name])
    restored = optimiser.state_dict()
    assert restored["param_groups"] == written.optimiser["param_groups"]
    for index, state in written.optimiser["state"].items():
        for name, value in state.items():
            assert torch.equal(restored["state"][index][name], value), name


def test_contents_of_another_shape_are_refused(small_graph: Dataset, tmp_path: Path) -> None:
    path, written = tmp_path / "checkpoint", _checkpoint(small_graph)
    written.save(path)
    found = Checkpoint.load(path)
    with pytest.raises(TrainError, match="does not fit the model"):
        found.restore_model(path, nn.Linear(4, 2), found.model)
    with pytest.raises(TrainError, match="does not fit the optimiser"):
        found.restore_optimiser(path, torch.optim.Adam([nn.Parameter(torch.ones(1))]))
    forged = [("state", "0", "exp_avg", torch.zeros(1)), ("param_groups", 0, "betas", "x")]
    for *where, name, value in [*forged, ("param_groups", 0, "params", None)]:
        found = Checkpoint.load(path)
        found.optimiser[where[0]][where[1]] |= {"fused": True} if where[1] == 0 else {}
        found.optimiser[where[0]][where[1]][name] = value
        with pytest.raises(TrainError, match="does not fit the optimiser"):
            found.restore_optimiser(path, torch.optim.Adam(nn.Linear(3, 2).parameters(), fused=True))
    for name, value in found.dataset.items():
        with pytest.raises(TrainError, match=f"another data set: its {name} is {value}, here it is -1"):
            found.check_dataset(path, {**found.dataset, name: -1})
    values = parse_values(path, None, kind := "pyg_batchgnn checkpoint", 3)
    progress = [{"epoch": -1}, {"step": 0.5}, {"loss": "x"}, {"best": {"loss": []}}, {"seconds": 10**400}]
    changes = [{"ranks": []}, {"rows": "../x"}, {"best": 7}, *({"progress": one} for one in progress)]
    for forged in [{"config": {}}, *({**values, **one} for one in changes)]:
        save_values(path, kind, 3, forged)
        with pytest.raises(TrainError, match="its contents are not those of a checkpoint"):
            Checkpoint.load(path)


RUN = [*SMALL, "--batch-size", "64", "--seed", "5"]


def tensorboard_of(folder: Path) -> dict[str, list[tuple[int, float]]]:
    found = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = found.EventAccumulator(str(folder)).Reload()
    return {
        name: [(one.step, one.value) for one in events.Scalars(name)] for name in events.Tags()["scalars"]
    }


def test_tensorboard_has_what_metrics_has(graph_folder: Path, tmp_path: Path) -> None:
    """And changes no bit of the run."""
    run, plain = tmp_path / "run", tmp_path / "plain"
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
    assert batchgnn("train", graph_folder, "--run", plain, *RUN, "--epochs", 3, "--log", "none") == 0
    logged = weights(run)
    assert all(logged[name].equal(tensor) for name, tensor in weights(plain).items())
    assert not (plain / "tensorboard").exists()


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


def broken(last: int) -> Any:
    """Returns a program that takes figures up to a step, and then fails, and fails to end."""

    def write(figures: Mapping[str, float], step: int) -> None:
        if step > last:
            raise ConnectionError("the server is gone")

    def close() -> None:
        raise ConnectionError("the server is gone")

    return lambda *_: (write, close)


def test_training_goes_on_without_its_log(
    graph_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(run_folder._SINKS, LogKind.TENSORBOARD, broken(1))
    with RunLog("tensorboard", tmp_path) as log:
        log.write({"loss": 1.0}, step=1)
        with pytest.warns(UserWarning, match="the log is lost from step 2 on: the server is gone"):
            log.write({"loss": 1.0}, step=2)
        log.write({"loss": 1.0}, step=3)  # from here on it is left alone
    monkeypatch.setitem(run_folder._SINKS, LogKind.TENSORBOARD, broken(10))
    run = tmp_path / "run"
    with pytest.warns(UserWarning, match="the log did not end well: the server is gone"):
        assert batchgnn("train", graph_folder, "--run", run, *RUN, "--epochs", 1, "--log", "tensorboard") == 0
    assert (run / "result.json").is_file()


def test_what_is_not_installed_stops_before_training(
    graph_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(run_folder._NEEDS, LogKind.WANDB, ("no_such_module", "pip install wandb"))
    assert batchgnn("train", graph_folder, "--run", tmp_path / "run", *RUN, "--log", "wandb") == 2
    said = capsys.readouterr().err
    assert "--log wandb needs the package no_such_module" in said and "pip install wandb" in said
    assert not (tmp_path / "run").exists()


def test_what_does_not_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> Any:
        raise OSError("no space left")

    monkeypatch.setitem(run_folder._SINKS, LogKind.TENSORBOARD, refuse)
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
