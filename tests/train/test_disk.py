"""Runs and plans of graphs whose features or edges are read from their files."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

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
from pyg_batchgnn.partition import partition_parts
from pyg_batchgnn.train import trainer
from pyg_batchgnn.train.checkpoint import Checkpoint
from pyg_batchgnn.train.progress import DiskFigure
from pyg_batchgnn.train.trainer import train_step
from pyg_batchgnn.train.training_data import fingerprint_dataset
from tests.data.test_csc import by_destination
from tests.support.tiny_datasets import equal, tiny_dataset
from tests.support.training_runs import SMALL, batchgnn, mistake, records, run_signalled, weights
from tests.support.typed_datasets import CASES, typed_dataset

# Evaluation has larger minibatches.
pytestmark = pytest.mark.filterwarnings("ignore:memory_budget leaves")

#: The features take 8 MB.
BUDGET = ["--memory-budget", "4MB"]
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


def disk_figures(run: Path) -> list[dict[str, float]]:
    return [json.loads(line)["disk"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def assert_same(left: Path, right: Path) -> None:
    expected, found = weights(left), weights(right)
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), name
    assert records(left) == records(right)


@pytest.mark.parametrize("prefetch", [0, 1])
def test_a_run_is_the_one_in_memory(
    prefetch: int, in_memory: Path, wide_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert batchgnn("train", wide_folder, "--run", run, *RUN, *BUDGET, "--prefetch", prefetch) == 0
    assert_same(in_memory, run)
    shown = capsys.readouterr().out
    assert disk_figures(in_memory) == [{}, {}]
    found = disk_figures(run)
    assert len(found) == EPOCHS
    for epoch in found:
        assert list(epoch) == [figure.value for figure in DiskFigure]
        assert all((value > 0) != name.startswith("edge") for name, value in epoch.items())
        assert epoch["useful_bytes"] == 4096 * epoch["rows"] <= epoch["bytes"]
    rows = int(sum(epoch["rows"] for epoch in found))
    assert re.search(rf"rows read +│ +{rows:,} ", shown)
    assert rows < sum(epoch["needed_rows"] for epoch in found), "minibatches share what a sweep reads"


def test_edges_in_files_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Edges take 0.8 MB, and features 1.5 MB."""
    folder = generate_papers_folder(PapersSpec(nodes=12_000, features=64), tmp_path / "graph")
    runs = [tmp_path / "memory", tmp_path / "files"]
    for run, budget in zip(runs, ([], ["--memory-budget", "600KB", "--prefetch", 1]), strict=True):
        assert batchgnn("train", folder, "--run", run, *RUN, *budget) == 0
    assert_same(*runs)
    assert disk_figures(runs[0]) == [{}, {}]
    for epoch in disk_figures(runs[1]):
        assert all(epoch[figure.value] > 0 for figure in DiskFigure if "hits" not in figure.value)
    edges = int(sum(epoch["edges"] for epoch in disk_figures(runs[1])))
    assert re.search(rf"edges that were picked +│ +{edges:,} ", capsys.readouterr().out)
    (tmp_path / "speeds.json").write_text("{}")
    plan = ["--machine", tmp_path / "speeds.json", "--ranks", 1, "--memory-budget", "600KB"]
    assert batchgnn("plan", folder, "--fanout", "4,3", "--batch-size", 32, *plan) == 0
    assert re.search(r"The edges, [67]\d\d\.\d kB, do not fit either", capsys.readouterr().out)


def test_killed_in_the_middle_of_an_epoch(in_memory: Path, wide_folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    disk = [*BUDGET, "--prefetch", 1, "--set", "run.checkpoint_seconds=0"]
    ended = run_signalled("SIGKILL", STEPS + 20, "train", wide_folder, "--run", run, *RUN, *disk)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    progress = Checkpoint.load(run / "checkpoint.safetensors").progress
    assert progress.epoch == 1 and 0 < progress.step < STEPS
    assert batchgnn("train", "--resume", run) == 0
    assert_same(in_memory, run)
    assert all(epoch["bytes"] for epoch in disk_figures(run))


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
    assert batchgnn("train", folder, "--run", tmp_path / "run", *RUN, *BUDGET, "--prefetch", 1) == 2
    size = file.stat().st_size
    assert capsys.readouterr().err == (
        f"batchgnn: {file}: the file was cut or written to since it was opened: {2 * size} bytes then, "
        f"{size} now; restore it, and let nothing change it while it is read\n"
    )


# Plans ############################################################################################


def test_a_plan_predicts_what_an_epoch_reads(
    wide_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "speeds.json").write_text("{}")
    options = ["--fanout", "4,3", "--batch-size", 32, "--hidden", 16, *BUDGET]
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


@pytest.mark.parametrize("budget", [[], ["--memory-budget", "1GB"]])
def test_a_plan_says_nothing_of_features_that_fit(
    budget: list[str], graph_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "speeds.json").write_text("{}")
    options = ["--fanout", "4,3", "--batch-size", 64, "--machine", tmp_path / "speeds.json", "--ranks", 1]
    assert batchgnn("plan", graph_folder, *options, *budget, "--out", tmp_path / "plan") == 0
    assert "files" not in capsys.readouterr().out
    assert json.loads((tmp_path / "plan" / "plan.json").read_text())["disk"] is None


def test_a_budget_is_for_a_plan_of_one_process(
    graph_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = mistake(capsys, "plan", graph_folder, "--ranks", 2, "--memory-budget", "1GB")
    assert "--memory-budget is for training in one process" in said


# Edges in files ###################################################################################


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The same graph as a list of edges and by destination, without edge ids."""
    root = tmp_path_factory.mktemp("folders")
    listed = load_dataset("generated:nodes=600,classes=4,features=8")
    by_target = by_destination(listed)
    return [write_folder(one, root / name) for one, name in ((listed, "list"), (by_target, "csc"))]


def test_a_run_learns_the_same(
    folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for folder in folders:
        run = tmp_path / folder.name
        more = ["--batch-size", 100, "--epochs", 2, "--seed", 1, "--run", run]
        assert batchgnn("train", folder, *SMALL, *more) == 0, capsys.readouterr().err
        found.append(records(run))
        assert batchgnn("predict", run, "--out", tmp_path / f"{folder.name}-predictions", "--exact") == 0
    assert found[0] == found[1]
    files = [tmp_path / f"{folder.name}-predictions" / "probabilities.npy" for folder in folders]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_plans_are_equal(folders: list[Path], tmp_path: Path) -> None:
    plans, speeds = [], tmp_path / "speeds.json"
    speeds.write_text("{}")
    for folder in folders:
        out = tmp_path / folder.name
        out.mkdir()
        arguments = ["--ranks", 2, "--fanout", "4,3", "--batch-size", 50, "--out", out, "--machine", speeds]
        assert batchgnn("plan", folder, *arguments) == 0
        plans.append(json.loads((out / "plan.json").read_text())["workload"])
    assert plans[0] == plans[1]


@pytest.mark.parametrize("case", [None, *CASES[:3]])
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
    assert fingerprint_dataset(dataset) == fingerprint_dataset(
        read_folder(write_folder(dataset, tmp_path / "csc"))
    )
    other = Dataset.homogeneous("other", dataset.num_nodes, dataset.edge_index.flip(1))
    assert fingerprint_dataset(by_destination(other)) != fingerprint_dataset(
        by_destination(Dataset.homogeneous("other", dataset.num_nodes, dataset.edge_index))
    )


def test_labels_may_be_narrow(tmp_path: Path) -> None:
    """Labels of one or two bytes give the same run as those of eight."""
    dataset = load_dataset("generated:nodes=600,classes=4,features=8")
    found = []
    for dtype in (torch.int64, torch.int16, torch.uint8):
        tables = {**dataset.nodes.tables, "y": dataset.nodes.tables["y"].to(dtype)}
        nodes = {"nodes": tables, "splits": dataset.splits, "num_classes": 4}
        narrow = Dataset.homogeneous("narrow", dataset.num_nodes, dataset.edge_index, **nodes)
        folder, run = write_folder(narrow, tmp_path / f"{dtype}"), tmp_path / f"run {dtype}"
        assert read_folder(folder).nodes.tables["y"].dtype is dtype
        assert batchgnn("train", folder, *SMALL, "--epochs", 2, "--seed", 1, "--run", run) == 0
        found.append(records(run))
    assert found[0] == found[1] == found[2]
