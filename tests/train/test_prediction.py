"""``batchgnn predict``: the right rows from the best weights, in a whole folder or none."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pyg_batchgnn.data import Dataset
from pyg_batchgnn.train.checkpoint import parse_values, save_values
from tests.support.training_runs import SMALL, batchgnn, mistake


@pytest.fixture(scope="module")
def trained(graph_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("predict") / "run"
    assert batchgnn("train", graph_folder, "--run", run, *SMALL, "--batch-size", 64, "--epochs", 2) == 0
    return run


def _arrays(out: Path) -> dict[str, np.ndarray]:
    return {path.stem: np.load(path, allow_pickle=False) for path in out.glob("*.npy")}


def test_test_nodes_have_the_accuracy_of_the_run(trained: Path, small_graph: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert batchgnn("predict", trained, "--nodes", "test", "--out", out) == 0
    arrays = _arrays(out)
    assert arrays.keys() == {"node_ids", "predictions", "probabilities"}
    labels = small_graph.nodes.tables["y"][small_graph.split("test")].numpy()
    expected = json.loads((trained / "result.json").read_text())["test"]
    assert (arrays["predictions"] == labels).mean() == pytest.approx(expected["accuracy"], abs=1e-12)
    assert np.array_equal(arrays["node_ids"], small_graph.split("test").numpy())
    assert np.array_equal(arrays["predictions"], arrays["probabilities"].argmax(1))
    np.testing.assert_allclose(arrays["probabilities"].sum(1), 1.0, rtol=1e-5)
    meta = json.loads((out / "META.json").read_text())
    assert meta["scores"] == pytest.approx(expected)
    assert meta["arrays"]["probabilities"] == {"shape": [len(labels), 4], "dtype": "float32"}


def test_a_run_of_pygs_layers_is_refused_with_one_sentence(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Versions that trained PyG's layers wrote such runs."""
    old = tmp_path / "old"
    shutil.copytree(trained, old)
    config = json.loads((old / "config.json").read_text())
    config["model"]["layers"] = "pyg"
    (old / "config.json").write_text(json.dumps(config))
    path = old / "checkpoint.safetensors"
    values = parse_values(path, path.read_bytes(), "pyg_batchgnn checkpoint", 3)
    save_values(path, "pyg_batchgnn checkpoint", 3, {**values, "config": config})
    for command in (
        ["train", "--resume", old],
        ["train", "--config", old / "config.json"],
        ["predict", old, "--out", tmp_path / "out"],
        ["evaluate", old],
    ):
        error = mistake(capsys, *command)
        assert f"{old}/" in error and "model.layers is pyg: " in error


def test_all_nodes_with_embeddings(trained: Path, small_graph: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    assert batchgnn("predict", trained, "--embeddings", "--out", out) == 0
    arrays = _arrays(out)
    assert np.array_equal(arrays["node_ids"], np.arange(small_graph.num_nodes))
    assert arrays["embeddings"].shape == (small_graph.num_nodes, 16)
    assert arrays["embeddings"].std() > 0
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_chosen_nodes_in_the_order_given(trained: Path, tmp_path: Path) -> None:
    chosen = np.array([7, 3, 7, 1999, 0], dtype=np.int32)
    np.save(tmp_path / "ids.npy", chosen)
    out = tmp_path / "out"
    assert batchgnn("predict", trained, "--nodes", tmp_path / "ids.npy", "--out", out) == 0
    arrays = _arrays(out)
    assert np.array_equal(arrays["node_ids"], chosen)
    assert np.array_equal(arrays["probabilities"][0], arrays["probabilities"][2])


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (np.array([0, 2000]), "node 2000 is not in 0..1999"),
        (np.array([-1]), "node -1 is not in 0..1999"),
        (np.array([0.5]), "must hold a one-dimensional array of integers"),
        (np.zeros((2, 2), np.int64), "must hold a one-dimensional array of integers"),
        (np.empty(0, np.int64), "no nodes to predict"),
        (np.array([{}], dtype=object), "not a .npy file"),
    ],
)
def test_impossible_nodes(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], ids: np.ndarray, message: str
) -> None:
    np.save(tmp_path / "ids.npy", ids, allow_pickle=True)
    error = mistake(capsys, "predict", trained, "--nodes", tmp_path / "ids.npy", "--out", tmp_path / "out")
    assert message in error
    assert not (tmp_path / "out").exists()


def test_mistakes(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = [
        (["predict", tmp_path / "none", "--out", tmp_path / "o"], "no such run folder"),
        (["predict", trained, "--out", tmp_path], "exists; give a new folder"),
        (["predict", trained, "--nodes", "some.npy", "--out", tmp_path / "o"], "some.npy: no such file"),
        (
            ["predict", trained, "--dataset", "generated:nodes=500", "--out", tmp_path / "o"],
            "is of another data set: its num_nodes is 2000, here it is 500",
        ),
    ]
    for arguments, message in cases:
        assert message in mistake(capsys, *arguments)
