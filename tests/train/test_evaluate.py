"""Sampled inference sees each node once and always gives the same numbers."""

from __future__ import annotations

import json
import math
import resource
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyg_batchgnn.data import Dataset
from pyg_batchgnn.train.checkpoint import Checkpoint, parse_values, save_values
from pyg_batchgnn.train.config.table import ModelConfig, RunConfig, SamplingConfig
from pyg_batchgnn.train.config.train_config import TrainConfig
from pyg_batchgnn.train.evaluate import infer
from pyg_batchgnn.train.link_prediction import BestPartners, best_columns
from pyg_batchgnn.train.network import ModelInputs, build_network
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.run_folder import RunFolder
from tests.support.launched_runs import assert_ended, launch
from tests.support.ranks import run_ranks
from tests.support.tiers import examples, in_all
from tests.support.training_runs import SMALL, batchgnn, job_alone, mistake


def _config(**sampling: object) -> TrainConfig:
    return TrainConfig(
        model=ModelConfig(num_layers=2, hidden=16),
        sampling=replace(SamplingConfig(fanout=(4, 3), test_fanout=(5, 5), batch_size=64), **sampling),  # type: ignore[arg-type]
        run=RunConfig(threads=1),
    )


def test_each_node_once_in_order(small_graph: Dataset) -> None:
    job, nothing = job_alone(_config(), small_graph), torch.empty(0, dtype=torch.int64)
    job.network.model.train()
    seen = [job.network.seeds(batch) for batch, _ in infer(job.network, job.val.loader)]
    assert torch.equal(torch.cat(seen), small_graph.split("val"))
    found = job.val.evaluate(Ranks.join(job.config.ranks), lambda: True)
    assert found is None and job.network.model.training, "the mode is put back"
    none = replace(job.val, loader=job.graph.evaluation_loader(nothing))
    assert none.evaluate(Ranks.join(job.config.ranks)) is None


def test_full_fanout_equals_the_whole_graph(small_graph: Dataset) -> None:
    job = job_alone(_config(test_fanout=(-1, -1)), small_graph)
    data = small_graph.to_pyg()
    whole = job.network.model.eval()(data.x, data.edge_index)
    sampled = torch.cat([output.logits for _, output in infer(job.network, job.test.loader)])
    torch.testing.assert_close(sampled, whole[small_graph.split("test")], atol=1e-5, rtol=1e-4)


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
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "name", "most"),
    [("evaluate", "metrics.json", 64), ("predict", "node_ids.npy", 64), ("predict", "node_ids.npy", 4096)],
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


@pytest.mark.parametrize("victim", [*in_all(0), 1])
def test_a_rank_that_is_killed_leaves_no_predictions(trained: Path, tmp_path: Path, victim: int) -> None:
    arguments = ["predict", str(trained), "--exact", "--out", str(tmp_path / "out"), "--timeout", "20"]
    given = {"arguments": arguments, "victim": victim}
    ended = run_ranks("tests.train.job_ranks:killed", 2, given, check=False, timeout=60.0)
    assert ended[victim].code == -signal.SIGKILL
    (other,) = ended[1 - victim].value
    assert other["status"] == 3 and other["err"].count("\n") == 1
    assert not (tmp_path / "out").exists()
    assert victim == 0 or not any(tmp_path.iterdir())


USERS, ITEMS, COLUMNS, TOP = 31, 45, 6, 7
SCORES = st.sampled_from([-math.inf, -2.0, -0.0, 0.0, 1.0, 3.5, math.inf, math.nan, -math.nan])


@given(st.data(), st.integers(1, 9), st.integers(1, 12))
def test_the_best_columns_are_those_of_a_stable_sort(data: st.DataObject, rows: int, columns: int) -> None:
    drawn = [data.draw(st.lists(SCORES, min_size=columns, max_size=columns)) for _ in range(rows)]
    scores, count = torch.tensor(drawn), data.draw(st.integers(1, columns))
    expected = scores.argsort(dim=1, descending=True, stable=True)
    behind = scores.isnan().gather(1, expected).int().argsort(dim=1, stable=True)  # NaN comes last
    assert torch.equal(best_columns(scores, count), expected.gather(1, behind)[:, :count])


@examples(50)
@given(st.randoms(use_true_random=False), st.integers(1, 5), st.integers(1, 9))
def test_partners_do_not_depend_on_the_pieces(random: Any, nodes: int, top: int) -> None:
    scores = torch.tensor([[random.choice([0.0, 1.0, 2.0, -1.0]) for _ in range(30)] for _ in range(nodes)])
    found = BestPartners(nodes, top)
    ids = list(range(30))
    random.shuffle(ids)
    while ids:
        size = random.randint(1, 11)
        piece, ids = torch.tensor(sorted(ids[:size])), ids[size:]
        found.offer(slice(0, nodes), scores[:, piece], piece)
    order = scores.argsort(dim=1, descending=True, stable=True)[:, :top]
    assert torch.equal(found.partners, order) and torch.equal(found.scores, scores.gather(1, order))


@pytest.fixture(scope="module")
def drawn_run(graph_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("predict") / "run"
    assert batchgnn("train", graph_folder, "--run", run, *SMALL, "--batch-size", 64, "--epochs", 2) == 0
    return run


def test_a_run_of_pygs_layers_is_refused_with_one_sentence(
    drawn_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Versions that trained PyG's layers wrote such runs."""
    old = tmp_path / "old"
    shutil.copytree(drawn_run, old)
    config = json.loads((old / "config.json").read_text())
    config["model"]["layers"] = "pyg"
    (old / "config.json").write_text(json.dumps(config))
    path = old / "checkpoint.safetensors"
    values = parse_values(path, path.read_bytes(), "pyg_batchgnn checkpoint", 3)
    save_values(path, "pyg_batchgnn checkpoint", 3, {**values, "config": config})
    trains = ["train", "--resume", old], ["train", "--config", old / "config.json"]
    for command in (*trains, ["predict", old, "--out", tmp_path / "out"], ["evaluate", old]):
        error = mistake(capsys, *command)
        assert f"{old}/" in error and "model.layers is pyg: " in error


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
    drawn_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], ids: np.ndarray, message: str
) -> None:
    np.save(tmp_path / "ids.npy", ids, allow_pickle=True)
    error = mistake(capsys, "predict", drawn_run, "--nodes", tmp_path / "ids.npy", "--out", tmp_path / "out")
    assert message in error
    assert not (tmp_path / "out").exists()
