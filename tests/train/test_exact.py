"""Prediction and evaluation from all neighbours, in one process and over ranks."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from pyg_batchgnn.data import Dataset
from pyg_batchgnn.train.checkpoint import Checkpoint
from pyg_batchgnn.train.network import ModelInputs, build_network
from pyg_batchgnn.train.run_folder import RunFolder
from tests.support.launched_runs import assert_ended, launch
from tests.support.ranks import run_ranks
from tests.support.tiers import in_all
from tests.support.training_runs import SMALL, batchgnn

OPTIONS = [*SMALL, "--batch-size", 64, "--epochs", 2, "--model", "gcn"]


@pytest.fixture(scope="module")
def trained(graph_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("exact") / "run"
    assert batchgnn("train", graph_folder, "--run", run, *OPTIONS, "--evaluation", "exact") == 0
    return run


def arrays(out: Path) -> dict[str, np.ndarray]:
    return {path.stem: np.load(path, allow_pickle=False) for path in out.glob("*.npy")}


def meta(out: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((out / "META.json").read_text())
    return found


def probabilities(run: Path, data: Dataset) -> torch.Tensor:
    """Returns the whole graph's forward pass with the best weights of a run."""
    checkpoint = Checkpoint.load(RunFolder(run).checkpoint)
    inputs = ModelInputs(data.schema, "node", {"node": data.num_features}, {})
    network = build_network(checkpoint.config, inputs, data.num_classes)
    network.model.load_state_dict(checkpoint.best)
    whole = data.to_pyg()
    with torch.no_grad():
        logits: torch.Tensor = network.model.eval()(whole.x, whole.edge_index)
    return logits.softmax(dim=1)


def test_exact_predictions_are_the_whole_graphs(trained: Path, small_graph: Dataset, tmp_path: Path) -> None:
    assert batchgnn("predict", trained, "--embeddings", "--out", tmp_path / "out") == 0
    found, expected = arrays(tmp_path / "out"), probabilities(trained, small_graph).numpy()
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-5)
    assert found["embeddings"].shape == (small_graph.num_nodes, 16)
    assert meta(tmp_path / "out")["evaluation"] == "exact" and meta(tmp_path / "out")["fanout"] is None
    assert batchgnn("predict", trained, "--embeddings-of", "node", "--out", tmp_path / "rows") == 0
    (name, rows), *others = arrays(tmp_path / "rows").items()
    assert name == "node" and not others and np.array_equal(rows, found["embeddings"])


def test_training_evaluates_exactly(trained: Path, small_graph: Dataset) -> None:
    found = json.loads((trained / "result.json").read_text())["test"]["accuracy"]
    test = small_graph.split("test")
    predicted = probabilities(trained, small_graph)[test].argmax(dim=1)
    assert found == pytest.approx(float((predicted == small_graph.nodes.tables["y"][test]).float().mean()))


def test_evaluate_writes_the_metrics_of_splits(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "metrics.json"
    assert batchgnn("evaluate", trained, "--out", out, "--splits", "train,test") == 0
    shown, found = capsys.readouterr().out, json.loads(out.read_text())
    result = json.loads((trained / "result.json").read_text())["test"]
    assert found["scores"]["test"] == pytest.approx(result)
    assert found["evaluation"] == "exact" and found["nodes"].keys() == {"train", "test"}
    assert f"test: accuracy {result['accuracy']:.4f}" in shown and "train: accuracy" in shown
    assert batchgnn("evaluate", trained, "--sampled", "--out", out) == 0
    assert json.loads(out.read_text())["evaluation"] == "sampled"


def test_mistakes(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = [
        (["evaluate", trained, "--splits", "tests"], "give one or more of train, val, test"),
        (["evaluate", tmp_path / "none"], "no such run folder"),
        (["evaluate", trained, "--out", tmp_path], "this is a folder; give a JSON file"),
        (["evaluate", trained, "--out", tmp_path / "none" / "m.json"], "there is no folder"),
        (["predict", trained, "--embeddings-of", "author", "--out", tmp_path / "o"], "it has those of node"),
        (["predict", trained, "--embeddings-of", ",", "--out", tmp_path / "o"], "give all or some of node"),
        (["predict", trained, "--embeddings-of", "", "--out", tmp_path / "o"], "-of names no type; give"),
        (
            ["predict", trained, "--embeddings-of", "all", "--sampled", "--out", tmp_path / "o"],
            "leave --sampled out",
        ),
        (
            ["predict", trained, "--embeddings-of", "all", "--nodes", "test", "--out", tmp_path / "o"],
            "leave --nodes, --embeddings, --pairs and --top out",
        ),
    ]
    for arguments, message in cases:
        assert batchgnn(*arguments) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    assert not any(tmp_path.iterdir())


def test_a_full_disk_is_named(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert batchgnn("predict", trained, "--out", tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert "No space left on device" in error and "node_ids.npy" in error and error.count("\n") == 1
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "name", "most"),
    [
        ("evaluate", "metrics.json", 64),
        ("predict", "node_ids.npy", 64),
        ("predict", "node_ids.npy", 4096),
    ],
)
def test_a_file_that_cannot_be_written_is_named(
    command: str, name: str, most: int, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The limit of a file's size stands for a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
    try:
        status = batchgnn(command, trained, "--out", tmp_path / "metrics.json")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    error = capsys.readouterr().err
    assert status == 2 and error.count("\n") == 1
    assert f"{name}: cannot be written (File too large)" in error
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("ranks", [2, *in_all(4)])
def test_ranks_predict_and_evaluate_as_one_process(trained: Path, tmp_path: Path, ranks: int) -> None:
    chosen = np.array([7, 3, 7, 1999, 0, 1200], dtype=np.int64)
    np.save(tmp_path / "ids.npy", chosen)
    commands = {
        "exact": ["predict", trained, "--embeddings"],
        "sampled": ["predict", trained, "--sampled"],
        "chosen": ["predict", trained, "--nodes", tmp_path / "ids.npy"],
    }
    (tmp_path / ".exact.partial").mkdir()  # of a process that was killed
    words = [[*command, "--out", tmp_path / name] for name, command in commands.items()]
    words += [["evaluate", trained, "--out", tmp_path / "metrics.json"], words[0]]
    done = launch(ranks, *({"arguments": list(map(str, one))} for one in words), hosts=list(range(ranks)))
    for seen in done[:-1]:
        assert_ended(seen, 0)
        assert all(not one["out"] for one in seen[1:]), "only the first rank reports"
    assert_ended(done[-1], 2)
    assert "exists; give a new folder" in done[-1][0]["err"]
    assert not any(one["err"] for one in done[-1][1:])
    for name, command in commands.items():
        assert batchgnn(*command, "--out", tmp_path / "alone" / name) == 0
        found, expected = arrays(tmp_path / name), arrays(tmp_path / "alone" / name)
        assert found.keys() == expected.keys()
        assert np.array_equal(found["node_ids"], expected["node_ids"])
        for array in found.keys() - {"node_ids", "predictions"}:
            np.testing.assert_allclose(found[array], expected[array], atol=1e-5)
        one, other = meta(tmp_path / name), meta(tmp_path / "alone" / name)
        assert one.pop("scores") == pytest.approx(other.pop("scores"), abs=1e-5) and one == other
    assert {path.name for path in tmp_path.iterdir()} == {*commands, "alone", "ids.npy", "metrics.json"}


def test_ranks_evaluate_exactly_during_training(graph_folder: Path, tmp_path: Path) -> None:
    run, options = tmp_path / "run", [*OPTIONS, "--epochs", 1, "--evaluation", "exact"]
    (seen,) = launch(2, {"arguments": list(map(str, ["train", graph_folder, "--run", run, *options]))})
    assert_ended(seen, 0)
    assert "evaluation from all neighbours" in seen[0]["out"]
    out = tmp_path / "metrics.json"
    assert batchgnn("evaluate", run, "--splits", "test", "--out", out) == 0
    result = json.loads((run / "result.json").read_text())["test"]
    assert json.loads(out.read_text())["scores"]["test"] == pytest.approx(result, abs=1e-5)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_is_killed_leaves_no_predictions(trained: Path, tmp_path: Path, victim: int) -> None:
    arguments = ["predict", str(trained), "--exact", "--out", str(tmp_path / "out"), "--timeout", "20"]
    given = {"arguments": arguments, "victim": victim}
    ended = run_ranks("tests.train.job_predict:killed", 2, given, check=False, timeout=60.0)
    assert ended[victim].code == -signal.SIGKILL
    (other,) = ended[1 - victim].value
    assert other["status"] == 3 and other["err"].count("\n") == 1
    assert not (tmp_path / "out").exists()
    assert victim == 0 or not any(tmp_path.iterdir())
