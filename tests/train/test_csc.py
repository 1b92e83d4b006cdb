"""Training, prediction, plans and partitions of folders whose edges lie by destination."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Dataset, load_dataset, read_folder, write_folder
from pyg_batchgnn.partition import partition_parts
from pyg_batchgnn.train.training_data import fingerprint_dataset
from tests.data.test_csc import by_destination
from tests.support.tiny_datasets import equal, tiny_dataset
from tests.support.training_runs import SMALL, batchgnn, records
from tests.support.typed_datasets import CASES, typed_dataset


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
