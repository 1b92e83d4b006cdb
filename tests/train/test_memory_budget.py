"""Runs and predictions whose features and rows of all nodes do not fit the memory budget."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from pyg_batchgnn.cache.pass_memory import PassMemory
from pyg_batchgnn.data import Dataset, load_dataset, write_folder
from pyg_batchgnn.disk import DiskReader, ScratchTable, is_mapped
from pyg_batchgnn.train import evaluate, prediction, training_data
from pyg_batchgnn.train.config import TrainConfig, assign
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.graphs import WholeGraph
from pyg_batchgnn.train.training_data import FeatureTables, fingerprint_dataset
from tests.support.tiny_datasets import changed
from tests.support.training_runs import SMALL, batchgnn, records

#: The features take 128,000 bytes.
BUDGET = "60kB"


@pytest.fixture(scope="module")
def run(graph_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("budget") / "run"
    assert batchgnn("train", graph_folder, "--run", run, *SMALL, "--batch-size", 64, "--epochs", 1) == 0
    return run


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A note of each read from a file and of each write to a new one."""
    seen: list[str] = []
    for kind, name in ((DiskReader, "read"), (ScratchTable, "append")):
        plain = getattr(kind, name)

        def noted(*given: Any, plain: Any = plain, name: str = name, **options: Any) -> Any:
            seen.append(name)
            return plain(*given, **options)

        monkeypatch.setattr(kind, name, noted)
    return seen


@pytest.mark.parametrize(
    "options", [["--exact", "--embeddings"], ["--exact", "--nodes", "ids.npy"], ["--embeddings-of", "all"]]
)
def test_predictions_are_the_same_files(
    options: list[str], run: Path, tmp_path: Path, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "ids.npy", np.array([7, 3, 7, 1999, 0, 8, 9]))
    for module in (prediction, evaluate):
        monkeypatch.setattr(module, "ROWS", 300)
    options = [str(tmp_path / one) if one == "ids.npy" else one for one in options]
    with mock.patch.object(PassMemory, "_fits", lambda *_: True):  # pieces, but all rows are held
        assert (
            batchgnn("predict", run, *options, "--memory-budget", BUDGET, "--out", tmp_path / "memory") == 0
        )
    assert not files
    assert batchgnn("predict", run, *options, "--memory-budget", BUDGET, "--out", tmp_path / "files") == 0
    assert {"read", "append"} <= set(files)
    names = sorted(path.name for path in (tmp_path / "memory").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "files").iterdir())
    for name in names:
        one, other = ((tmp_path / folder / name).read_bytes() for folder in ("memory", "files"))
        if name != "META.json":
            assert one == other, name
            continue
        scores = [json.loads(text).pop("scores", None) for text in (one, other)]
        assert scores[0] == pytest.approx(scores[1])


def test_a_budget_changes_no_evaluation(
    run: Path, graph_folder: Path, tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    options = [*SMALL, "--batch-size", 64, "--epochs", 2, "--evaluation", "exact"]
    for name, budget in (("memory", []), ("files", ["--memory-budget", BUDGET])):
        assert batchgnn("train", graph_folder, "--run", tmp_path / name, *options, *budget) == 0
        capsys.readouterr()
        assert batchgnn("evaluate", run, "--exact", *budget) == 0
        (tmp_path / f"{name}.txt").write_text(capsys.readouterr().out)
        assert bool(files) == bool(budget)
    assert (tmp_path / "memory.txt").read_text() == (tmp_path / "files.txt").read_text()
    one, other = (records(tmp_path / name) for name in ("memory", "files"))
    assert one[-1]["val"] == pytest.approx(other[-1]["val"])


@pytest.mark.parametrize("ask", ["--pairs", "--top"])
def test_links(ask: str, graph_folder: Path, tmp_path: Path, files: list[str]) -> None:
    data = f"{graph_folder}:hold_out=0.1"
    command = ["train", data, "--task", "link", "--run", tmp_path / "run", *SMALL, "--batch-size", 512]
    assert batchgnn(*command, "--epochs", 1) == 0
    files.clear()
    pairs = np.random.default_rng(0).integers(0, 2000, (500, 2))
    np.save(tmp_path / "ids.npy", pairs if ask == "--pairs" else pairs[:50, 0])
    wanted = [ask, tmp_path / "ids.npy"] if ask == "--pairs" else [ask, 5, "--nodes", tmp_path / "ids.npy"]
    command = ["predict", tmp_path / "run", *wanted, "--memory-budget", BUDGET]
    with mock.patch.object(PassMemory, "_fits", lambda *_: True):
        assert batchgnn(*command, "--out", tmp_path / "memory") == 0
    assert not files
    assert batchgnn(*command, "--out", tmp_path / "files") == 0 and files
    for path in (tmp_path / "memory").glob("*.npy"):
        assert path.read_bytes() == (tmp_path / "files" / path.name).read_bytes(), path.name


# What is held #####################################################################################


def tables(data: Dataset, budget: str | None) -> FeatureTables:
    found = {one.name: one.tables["x"] for one in data.node_sets}
    return FeatureTables.of(found, assign(TrainConfig(), [f"sampling.memory_budget={budget}"]))


def test_features_that_fit_half_of_the_budget_are_held(graph_folder: Path) -> None:
    data = load_dataset(graph_folder)
    assert is_mapped(data.nodes.tables["x"])
    small = tables(data, "255000")
    assert small.held == 0 and small.tables["node"] is data.nodes.tables["x"]
    large = tables(data, "256000")
    assert large.held == 128_000 and not is_mapped(large.tables["node"])
    assert tables(data, "none").held == 128_000


def test_the_budget_of_the_loader_is_what_features_leave(graph_folder: Path) -> None:
    for given, left in (("1000000", 872_000), ("200000", 200_000), ("none", None)):
        config = assign(TrainConfig(), [f"sampling.memory_budget={given}"])
        graph = WholeGraph.of(load_dataset(graph_folder), config)
        assert graph.memory_budget == left
        loader = graph.evaluation_loader(torch.arange(9))
        assert loader._options.memory_budget == left


def test_float64_that_stays_on_disk_is_refused(small_graph: Dataset, tmp_path: Path) -> None:
    wide = changed(small_graph, {"nodes/x": small_graph.nodes.tables["x"].double()})
    data = load_dataset(write_folder(wide, tmp_path / "wide"))
    assert tables(data, "1000000").tables["node"].dtype is torch.float32
    with pytest.raises(TrainError, match="the features are float64 and stay on disk"):
        tables(data, "100000")


def test_learned_rows_that_do_not_fit_are_refused(graph_folder: Path) -> None:
    data = load_dataset(graph_folder)
    config = assign(TrainConfig(), ["embedding.types=all", "embedding.columns=10"])
    # 2,000 rows of 10 columns, with two numbers of Adam beside each
    for rule, size in (("adam", 240_000), ("sgd", 80_000)):
        given = assign(config, [f"embedding.rule={rule}", f"sampling.memory_budget={size - 1}"])
        text = rf"take {size:,} bytes on each rank, but the memory budget is {size - 1:,}; embeddings"
        with pytest.raises(TrainError, match=text):
            WholeGraph.of(data, given)
        WholeGraph.of(data, assign(given, [f"sampling.memory_budget={size}"]))


def test_learned_rows_are_not_joined_to_features_on_disk(graph_folder: Path) -> None:
    data = load_dataset(graph_folder)
    config = assign(
        TrainConfig(), ["embedding.types=all", "embedding.columns=1", "sampling.memory_budget=100000"]
    )
    WholeGraph.of(data, config)
    with pytest.raises(TrainError, match="node has learned rows and features that stay on disk"):
        WholeGraph.of(data, assign(config, ["sampling.evaluation=exact"]))


def test_the_fingerprint_of_a_large_file_is_read_past_the_page_cache(
    graph_folder: Path, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_data, "_SAMPLES", 1000)
    plain = fingerprint_dataset(load_dataset(graph_folder))
    assert not files
    monkeypatch.setattr(training_data, "_LARGE", 50_000)
    assert fingerprint_dataset(load_dataset(graph_folder)) == plain and files
