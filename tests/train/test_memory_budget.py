"""Runs of graphs larger than memory: budgets, features and edges in files."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from pyg_batchgnn.cache.pass_memory import PassMemory
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import (
    Dataset,
    GeneratorSpec,
    PapersSpec,
    generate_folder,
    generate_papers_folder,
    load_dataset,
    read_folder,
    write_folder,
)
from pyg_batchgnn.disk import DiskReader, ScratchTable, is_mapped
from pyg_batchgnn.loader import setup
from pyg_batchgnn.partition import partition_parts
from pyg_batchgnn.train import evaluate, prediction, trainer, training_data
from pyg_batchgnn.train.checkpoint import DISK_FIGURES
from pyg_batchgnn.train.config.train_config import TrainConfig, assign
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.graphs import WholeGraph
from pyg_batchgnn.train.trainer import train_step
from pyg_batchgnn.train.training_data import feature_tables, fingerprint_dataset
from tests.data.test_edges import by_destination
from tests.support.launched_runs import assert_same_tensors
from tests.support.tiers import in_all
from tests.support.tiny_datasets import changed, equal, tiny_dataset
from tests.support.training_runs import SMALL, batchgnn, mistake, records
from tests.support.typed_datasets import CASES, typed_dataset

#: The features take 128,000 bytes.
BUDGET = "150kB"


@pytest.fixture(scope="module")
def run(graph_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("budget") / "run"
    assert batchgnn("train", graph_folder, "--run", run, *SMALL, "--batch-size", 64, "--epochs", 1) == 0
    return run


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []
    for kind, name in ((DiskReader, "read"), (ScratchTable, "append")):
        plain = getattr(kind, name)

        def noted(*given: Any, plain: Any = plain, name: str = name, **options: Any) -> Any:
            seen.append(name)
            return plain(*given, **options)

        monkeypatch.setattr(kind, name, noted)
    return seen


@pytest.mark.parametrize(
    "options",
    [
        ["--exact", "--embeddings", "--nodes", "ids.npy"],
        *in_all(["--exact", "--embeddings"], ["--embeddings-of", "all"]),
    ],
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


def tables(data: Dataset, budget: str | None) -> tuple[dict[str, torch.Tensor], int]:
    found = {one.name: one.tables["x"] for one in data.node_sets}
    return feature_tables(found, assign(TrainConfig(), [f"sampling.memory_budget={budget}"]))


def test_features_that_fit_half_of_the_budget_are_held(graph_folder: Path) -> None:
    data = load_dataset(graph_folder)
    assert is_mapped(data.nodes.tables["x"])
    small, held = tables(data, "255000")
    assert held == 0 and small["node"] is data.nodes.tables["x"]
    large, held = tables(data, "256000")
    assert held == 128_000 and not is_mapped(large["node"])
    assert tables(data, "none")[1] == 128_000
    for given, left in (("1000000", 872_000), ("200000", 200_000), ("none", None)):
        graph = WholeGraph.of(data, assign(TrainConfig(), [f"sampling.memory_budget={given}"]))
        assert graph.memory_budget == left, "the loader has what features leave"
        assert graph.evaluation_loader(torch.arange(9))._options.memory_budget == left


def test_float64_that_stays_on_disk_is_refused(small_graph: Dataset, tmp_path: Path) -> None:
    wide = changed(small_graph, {"nodes/x": small_graph.nodes.tables["x"].double()})
    data = load_dataset(write_folder(wide, tmp_path / "wide"))
    assert tables(data, "1000000")[0]["node"].dtype is torch.float32
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


# Evaluation has larger minibatches.
pytestmark = pytest.mark.filterwarnings("ignore:memory_budget leaves")

#: The features take 8 MB.
LESS = ["--memory-budget", "4MB"]
EPOCHS, STEPS = 2, 37
RUN = [*SMALL, "--batch-size", 32, "--epochs", EPOCHS, "--seed", 5, "--set", "run.matrix_product=native"]


@pytest.fixture(scope="module")
def wide_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 nodes, 1,185 of them for training, of 1,024 features."""
    folder = tmp_path_factory.mktemp("graph") / "wide"
    generate_folder(GeneratorSpec(nodes=2000, seed=3, degree=8.0, classes=4, features=1024), folder)
    return folder


@pytest.fixture(scope="module")
def in_memory(wide_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("memory") / "run"
    assert batchgnn("train", wide_folder, "--run", run, *RUN) == 0
    return run


def assert_same(left: Path, right: Path) -> None:
    assert_same_tensors(left, right)
    assert records(left) == records(right)


def disk_figures(run: Path) -> list[dict[str, float]]:
    return [json.loads(line)["disk"] for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("prefetch", [*in_all(0), 1])
def test_a_run_is_the_one_in_memory(
    prefetch: int, in_memory: Path, wide_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert batchgnn("train", wide_folder, "--run", run, *RUN, *LESS, "--epochs", 1) == 0
    assert batchgnn("train", "--resume", run, "--epochs", EPOCHS, "--prefetch", prefetch) == 0
    assert_same(in_memory, run)
    shown = capsys.readouterr().out
    assert disk_figures(in_memory) == [{}, {}]
    found = disk_figures(run)
    assert len(found) == EPOCHS
    for epoch in found:
        assert list(epoch) == [*DISK_FIGURES]
        assert all((value > 0) != name.startswith("edge") for name, value in epoch.items())
        assert epoch["useful_bytes"] == 4096 * epoch["rows"] <= epoch["bytes"]
    rows = int(sum(epoch["rows"] for epoch in found))
    assert re.search(rf"rows read +│ +{rows:,} ", shown)
    assert rows < sum(epoch["needed_rows"] for epoch in found), "minibatches share what a sweep reads"


def test_edges_in_files_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edges take 0.8 MB, and features 1.5 MB. The page cache is said to have no room for them."""
    monkeypatch.setattr(setup, "cache_holds", lambda *_: False)
    folder = generate_papers_folder(PapersSpec(nodes=12_000, features=64), tmp_path / "graph")
    runs = [tmp_path / "memory", tmp_path / "files"]
    for run, budget in zip(runs, ([], ["--memory-budget", "600KB", "--prefetch", 1]), strict=True):
        assert batchgnn("train", folder, "--run", run, *RUN, *budget) == 0
    assert_same(*runs)
    assert disk_figures(runs[0]) == [{}, {}]
    for epoch in disk_figures(runs[1]):
        assert all(epoch[name] > 0 for name in DISK_FIGURES)
    edges = int(sum(epoch["edges"] for epoch in disk_figures(runs[1])))
    shown = capsys.readouterr().out
    assert re.search(rf"edges that were picked +│ +{edges:,} ", shown)
    assert re.search(r"holds the edges +│ +[78]\d\d\.\d kB", shown)
    assert re.search(r"holds everything +│ +3\.1 MB", shown)
    (tmp_path / "speeds.json").write_text("{}")
    plan = ["--machine", tmp_path / "speeds.json", "--ranks", 1, "--memory-budget", "600KB"]
    assert batchgnn("plan", folder, "--fanout", "4,3", "--batch-size", 32, *plan) == 0
    shown = capsys.readouterr().out
    assert re.search(r"The edges, [67]\d\d\.\d kB, do not fit either", shown)
    larger = r"A larger --memory-budget: [78]\d\d\.\d kB hold the edges in memory, 3\.1 MB hold everything\."
    assert re.search(larger, " ".join(shown.split()))


def test_a_file_that_shrinks_ends_the_run(
    wide_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "graph"
    generate_folder(GeneratorSpec(nodes=2000, seed=3, degree=8.0, classes=4, features=1024), folder)
    file, steps = folder / "nodes" / "x.npy", iter(range(10**6))

    def cut(*arguments: Any) -> Any:
        if next(steps) == 5:
            os.truncate(file, file.stat().st_size // 2)
        return train_step(*arguments)

    monkeypatch.setattr(trainer, "train_step", cut)
    assert batchgnn("train", folder, "--run", tmp_path / "run", *RUN, *LESS, "--prefetch", 1) == 2
    size = file.stat().st_size
    assert capsys.readouterr().err == (
        f"batchgnn: {file}: the file was cut or written to since it was opened: {2 * size} bytes then, "
        f"{size} now; restore it, and let nothing change it while it is read\n"
    )


def test_a_plan_predicts_what_an_epoch_reads(
    wide_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "speeds.json").write_text("{}")
    options = ["--fanout", "4,3", "--batch-size", 32, "--hidden", 16, *LESS]
    plan = [*options, "--machine", tmp_path / "speeds.json", "--ranks", 1, "--out", tmp_path / "plan"]
    assert batchgnn("plan", wide_folder, *plan) == 0
    shown = capsys.readouterr().out
    assert "Features: 8.2 MB do not fit half of the memory budget and are read from their files" in shown
    assert "--prefetch 1 --memory-budget 4MB" in shown
    forecast = json.loads((tmp_path / "plan" / "plan.json").read_text())["disk"]

    run = tmp_path / "run"
    arguments = [*SMALL, *options, "--prefetch", 1, "--epochs", 1]
    assert batchgnn("train", wide_folder, "--run", run, *arguments) == 0
    (found,) = disk_figures(run)
    # The table is small. Larger ones are predicted better (benchmark/pages/disk.md).
    assert forecast["bytes"] == pytest.approx(found["bytes"], rel=0.35)
    assert forecast["rows"] == pytest.approx(found["rows"], rel=0.35)


def test_a_budget_is_for_a_plan_of_one_process(
    graph_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = mistake(capsys, "plan", graph_folder, "--ranks", 2, "--memory-budget", "1GB")
    assert "--memory-budget is for training in one process" in said


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The same graph as a list of edges and by destination, without edge ids."""
    root = tmp_path_factory.mktemp("folders")
    listed = load_dataset("generated:nodes=600,classes=4,features=8")
    by_target = by_destination(listed)
    return [write_folder(one, root / name) for one, name in ((listed, "list"), (by_target, "csc"))]


def test_a_run_learns_the_same_and_is_planned_alike(
    folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, plans, speeds = [], [], tmp_path / "speeds.json"
    speeds.write_text("{}")
    plan = ["--ranks", 2, "--fanout", "4,3", "--batch-size", 50, "--machine", speeds]
    for folder in folders:
        out = tmp_path / f"{folder.name}-plan"
        assert batchgnn("plan", folder, *plan, "--out", out) == 0
        plans.append(json.loads((out / "plan.json").read_text())["workload"])
        run = tmp_path / folder.name
        more = ["--batch-size", 100, "--epochs", 2, "--seed", 1, "--run", run]
        assert batchgnn("train", folder, *SMALL, *more) == 0, capsys.readouterr().err
        found.append(records(run))
        assert batchgnn("predict", run, "--out", tmp_path / f"{folder.name}-predictions", "--exact") == 0
    assert found[0] == found[1] and plans[0] == plans[1]
    files = [tmp_path / f"{folder.name}-predictions" / "probabilities.npy" for folder in folders]
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("case", [None, CASES[0], *in_all(*((one,) for one in CASES[1:3]))])
def test_parts_are_equal(tmp_path: Path, case: tuple | None) -> None:
    dataset = tiny_dataset() if case is None else typed_dataset(*case)
    folder = write_folder(by_destination(dataset), tmp_path / "csc")
    with Communicator.create("alone") as comm:
        listed, by_target = (
            partition_parts(one, "random", 2, comm=comm) for one in (dataset, read_folder(folder))
        )
    for one, other in zip(listed, by_target, strict=True):
        assert torch.equal(one.node, other.node)
        for relation in one.schema.relations:
            left, right = one.in_edges_of(relation), other.in_edges_of(relation)
            assert torch.equal(left.indptr, right.indptr)
            assert torch.equal(left.indices, right.indices)
            assert torch.equal(left.explicit_edge_ids().long(), right.explicit_edge_ids().long())
        for group, tables in one.attributes.items():
            assert all(equal(table, other.attributes[group][name]) for name, table in tables.items())


def test_the_fingerprint_sees_edges(tmp_path: Path) -> None:
    dataset = by_destination(tiny_dataset())
    csc = dataset.edges.csc
    assert csc is not None
    again = read_folder(write_folder(dataset, tmp_path / "csc"))
    assert fingerprint_dataset(dataset) == fingerprint_dataset(again)
    other = Dataset.homogeneous("other", dataset.num_nodes, dataset.edge_index.flip(1))
    assert fingerprint_dataset(by_destination(other)) != fingerprint_dataset(
        by_destination(Dataset.homogeneous("other", dataset.num_nodes, dataset.edge_index))
    )
