"""Folders with lists of edges become folders by destination, within any budget of memory."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.data import (
    Dataset,
    DatasetError,
    DatasetNotFoundError,
    convert_folder,
    read_folder,
    verify_folder,
    write_folder,
)
from pyg_batchgnn.data import external_sort as sort_module
from tests.support.programs import run_text
from tests.support.tiers import in_all
from tests.support.tiny_datasets import equal, save_arrays, tiny_dataset
from tests.support.training_runs import batchgnn
from tests.support.typed_datasets import CASES, typed_dataset


def bytes_of(folder: Path) -> dict[str, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def assert_sorted(folder: Path, index: Tensor, sources: int, targets: int, ids: bool) -> None:
    found, wanted = read_folder(folder).edge_sets[0].csc, ops.build_csc(index, targets, sources)
    assert found is not None
    assert equal(found.indptr, wanted.indptr)
    assert equal(found.indices, wanted.indices)
    if wanted.edge_ids is None or not ids:
        assert found.edge_ids is None
    else:
        assert found.edge_ids is not None
        assert equal(found.edge_ids, wanted.edge_ids)


def write_parquet(folder: Path, index: np.ndarray) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder.mkdir(parents=True)
    for number, part in enumerate(np.array_split(index, 3, axis=1)):
        table = pa.table({"dst": part[1], "src": part[0]})
        pq.write_table(table, folder / f"edges.{number}.parquet", row_group_size=7)


FORMS: dict[str, Callable[[Path, np.ndarray], object]] = {
    "list": lambda folder, index: save_arrays(folder, edge_index=index),
    "pairs": lambda folder, index: save_arrays(folder, edge_index=np.asfortranarray(index)),
    "columns": lambda folder, index: save_arrays(folder, src=index[0], dst=index[1]),
    "swapped": lambda folder, index: save_arrays(folder, edge_index=index.astype(index.dtype.newbyteorder())),
    "parquet": write_parquet,
}


@given(data=st.data())
@pytest.mark.parametrize("write", FORMS.values(), ids=FORMS)
def test_any_list_equals_the_sort_in_memory(
    tmp_path_factory: pytest.TempPathFactory, write: Callable[[Path, np.ndarray], object], data: st.DataObject
) -> None:
    nodes = data.draw(st.integers(1, 40))
    index = np.array(
        data.draw(st.lists(st.tuples(*[st.integers(0, nodes - 1)] * 2), max_size=150)),
        data.draw(st.sampled_from([np.int64, np.int32, np.uint8])),
    ).reshape(-1, 2)
    if data.draw(st.booleans()):
        index = index[np.argsort(index[:, 1], kind="stable")]
    ids = data.draw(st.booleans())
    budget = data.draw(st.sampled_from([1500, 4000, 1 << 20]))
    root = tmp_path_factory.mktemp("sort")
    write(root / "list", np.ascontiguousarray(index.T))
    save_arrays(root / "list" / "nodes", x=np.zeros((nodes, 1), np.float32))
    made = convert_folder(root / "list", root / "csc", memory_budget=budget, edge_ids=ids)
    assert made.edges["edges"].edges == len(index)
    assert_sorted(root / "csc", torch.from_numpy(index.T.astype(np.int64)), nodes, nodes, ids)


@pytest.mark.parametrize("case", CASES)
def test_typed_graphs(tmp_path: Path, case: tuple) -> None:
    """Relations whose edges have attributes keep the ids, and a list of edges comes back."""
    dataset = typed_dataset(*case)
    convert_folder(write_folder(dataset, tmp_path / "list"), tmp_path / "csc", memory_budget=20_000)
    assert verify_folder(tmp_path / "csc") >= 0
    found = read_folder(tmp_path / "csc")
    assert found.schema == dataset.schema
    for before, after in zip(dataset.edge_sets, found.edge_sets, strict=True):
        assert after.csc is not None
        if before.tables:
            assert torch.equal(after.edge_index, before.edge_index.long())
        else:
            assert after.csc.edge_ids is None
        assert all(equal(table, after.tables[name]) for name, table in before.tables.items())
    for before, after in zip(dataset.node_sets, found.node_sets, strict=True):
        assert (before.num_nodes, before.num_classes) == (after.num_nodes, after.num_classes)
        assert all(equal(table, after.tables[name]) for name, table in before.tables.items())


def test_attributes_of_edges_in_parquet(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / "list").mkdir()
    columns = {"src": [3, 1, 0], "dst": [1, 2, 0], "edge_attr": [0.5, 1.5, 2.5], "year": [7, 8, 9]}
    pq.write_table(pa.table(columns), tmp_path / "list" / "edges.parquet")
    pq.write_table(pa.table({"y": [0, 1, 0, 1]}), tmp_path / "list" / "nodes.parquet")
    convert_folder(tmp_path / "list", tmp_path / "csc")
    before, after = read_folder(tmp_path / "list"), read_folder(tmp_path / "csc")
    assert after.edge_index.tolist() == before.edge_index.tolist()
    assert before.edges.tables.keys() == after.edges.tables.keys() == {"edge_attr", "year"}
    assert all(equal(table, after.edges.tables[name]) for name, table in before.edges.tables.items())
    assert after.num_nodes == 4
    assert after.num_classes == 2


@pytest.mark.parametrize("links", [True, False])
def test_everything_else_stays_as_it_is(tmp_path: Path, links: bool) -> None:
    dataset = tiny_dataset()
    tables = {**dataset.nodes.tables, "half": dataset.nodes.tables["x"].bfloat16()}
    dataset = Dataset.homogeneous("tiny", 20, dataset.edge_index, nodes=tables, splits=dataset.splits)
    source = write_folder(dataset, tmp_path / "list")
    (source / "keys").mkdir()
    (source / "keys" / "node.parquet").write_bytes(b"keys")
    made = convert_folder(source, tmp_path / "csc", links=links)
    size = sum(file.stat().st_size for file in source.rglob("*") if file.is_file())
    size -= sum((source / name).stat().st_size for name in ("META.json", "edge_index.npy"))
    assert (made.linked, made.copied) == ((size, 0) if links else (0, size))
    assert verify_folder(tmp_path / "csc") > 0
    found = read_folder(tmp_path / "csc")
    assert found.name == "tiny"
    assert found.source == dataset.source
    assert all(equal(table, found.nodes.tables[name]) for name, table in tables.items())
    assert all(equal(ids, found.split(name)) for name, ids in dataset.splits.items())
    for name in ("nodes/x.npy", "keys/node.parquet"):
        assert ((source / name).stat().st_ino == (tmp_path / "csc" / name).stat().st_ino) == links
        assert (source / name).read_bytes() == (tmp_path / "csc" / name).read_bytes()


def test_a_folder_made_by_hand(tmp_path: Path) -> None:
    """The usual arrays, masks and META.json stay; counts that it does not say are found."""
    index, mask = np.array([[0, 4, 2], [3, 1, 1]]), np.array([True, False, False, False, True])
    arrays: dict[str, Any] = {"x": np.ones((5, 2)), "y": np.array([0, np.nan, 1, 1, 0]), "train_mask": mask}
    source = save_arrays(tmp_path / "list", edge_index=index, **arrays)
    convert_folder(source, tmp_path / "csc")
    before, after = read_folder(source), read_folder(tmp_path / "csc")
    assert (after.num_nodes, after.num_classes, after.name) == (5, 2, "list")
    assert after.split("train").tolist() == [0, 4]
    assert all(equal(table, after.nodes.tables[name]) for name, table in before.nodes.tables.items())
    bare = save_arrays(tmp_path / "bare", edge_index=index)
    convert_folder(bare, tmp_path / "bare-csc")
    assert read_folder(tmp_path / "bare-csc").num_nodes == 5


def test_a_folder_by_destination_stays(tmp_path: Path) -> None:
    convert_folder(write_folder(tiny_dataset(), tmp_path / "list"), tmp_path / "csc")
    made = convert_folder(tmp_path / "csc", tmp_path / "again")
    assert made.edges == {}
    assert bytes_of(tmp_path / "again") == bytes_of(tmp_path / "csc")


JOB = """
import os, signal, sys
from pyg_batchgnn.data import convert_folder
calls = []
def progress(*said):
    calls.append(said)
    if len(calls) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
convert_folder(sys.argv[1], sys.argv[2], memory_budget=60_000, progress=progress)
"""


def large(folder: Path) -> Path:
    draw = torch.Generator().manual_seed(0)
    index = torch.randint(0, 500, (2, 10_000), generator=draw)
    tables = {"x": torch.rand(500, 4, generator=draw)}
    weights = {"weight": torch.rand(10_000, generator=draw)}
    return write_folder(Dataset.homogeneous("large", 500, index, nodes=tables, edges=weights), folder)


def killed(source: Path, folder: Path, at: int) -> None:
    assert run_text(JOB, source, folder, str(at)).returncode == -signal.SIGKILL


def interrupted(source: Path, folder: Path, at: int) -> None:
    calls: list[tuple] = []

    def progress(*said: Any) -> None:
        calls.append(said)
        if len(calls) == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert_folder(source, folder, memory_budget=60_000, progress=progress)


@pytest.mark.parametrize("end", [interrupted, *in_all(killed)])
def test_a_conversion_that_ended_early_goes_on(
    tmp_path: Path, end: Callable[[Path, Path, int], None]
) -> None:
    source, calls, counts = large(tmp_path / "list"), [], []
    convert_folder(
        source, tmp_path / "whole", memory_budget=60_000, progress=lambda *said: calls.append(said)
    )
    pieces = sum(phase == "counting" for phase, *_ in calls)
    for kill_at in (pieces // 2, pieces * 3 // 2, pieces + 4):  # while counting, spreading and sorting
        end(source, tmp_path / "csc", kill_at)
        assert not (tmp_path / "csc").exists()
        journal = tmp_path / ".csc.converting" / "journal.json"
        counts.append(len(json.loads(journal.read_text())["steps"]) if journal.exists() else 0)
    assert 0 == counts[0] < counts[1] < counts[2], "no step was completed"
    again: list[tuple] = []
    convert_folder(source, tmp_path / "csc", memory_budget=60_000, progress=lambda *said: again.append(said))
    assert "counting" not in {phase for phase, *_ in again}
    assert bytes_of(tmp_path / "csc") == bytes_of(tmp_path / "whole")
    assert read_folder(tmp_path / "csc").edge_index.equal(read_folder(source).edge_index)


@pytest.mark.parametrize("writes", [*in_all(3, 40, 400), 120, 700])
def test_a_full_disk_keeps_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    source, done = large(tmp_path / "list"), []
    write = sort_module.write_bytes

    def full(stream: Any, path: Path, values: np.ndarray) -> None:
        done.append(path)
        if len(done) == writes:
            with sort_module.writing(path):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(stream, path, values)

    monkeypatch.setattr(sort_module, "write_bytes", full)
    said = r"cannot be written \(No space left on device\); free space .*; what is complete stays in .*\.csc"
    with pytest.raises(DatasetError, match=said):
        convert_folder(source, tmp_path / "csc", memory_budget=60_000)
    assert (tmp_path / ".csc.converting" / "journal.json").exists()
    first = len(done)
    convert_folder(source, tmp_path / "csc", memory_budget=60_000)
    convert_folder(source, tmp_path / "whole", memory_budget=1 << 20)
    assert bytes_of(tmp_path / "csc") == bytes_of(tmp_path / "whole")
    assert writes < 100 or len(done) - first < len(done)  # what was complete was not done again


MEASURED = """
import re, sys
import torch
from pyg_batchgnn import ops
from pyg_batchgnn.data import convert_folder
def peak():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
ops.build_csc(torch.randint(0, 9, (2, 99)), 9)
before = peak()
convert_folder(sys.argv[1], sys.argv[2], memory_budget=int(sys.argv[3]), edge_ids=True)
print(peak() - before)
"""


def test_memory_stays_within_the_budget(tmp_path: Path) -> None:
    """A list of 32 MB is sorted in 8 MiB. In memory that takes another 50 MB."""
    index = np.random.default_rng(0).integers(0, 100_000, (2, 2_000_000))
    save_arrays(tmp_path / "list", edge_index=index)
    (tmp_path / "list" / "META.json").write_text('{"num_nodes": 100000}')
    budget = 8 << 20
    arguments = [sys.executable, "-c", MEASURED, tmp_path / "list", tmp_path / "csc", str(budget)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(arguments, env=env, check=True, capture_output=True, text=True)
    assert int(ended.stdout) < budget + (16 << 20)  # buffers, and what allocators keep
    assert_sorted(tmp_path / "csc", torch.from_numpy(index), 100_000, 100_000, ids=True)


def test_mistakes_are_named(tmp_path: Path) -> None:
    source = write_folder(tiny_dataset(), tmp_path / "list")
    with pytest.raises(DatasetNotFoundError, match="none: no such folder"):
        convert_folder(tmp_path / "none", tmp_path / "csc")
    with pytest.raises(DatasetError, match="exists already"):
        convert_folder(source, source.parent)
    with pytest.raises(DatasetError, match=r"lies in .*list, which is converted"):
        convert_folder(source, source / "csc")
    with pytest.raises(
        DatasetError, match=r"100 bytes is too small to sort 60 edges .* give at least 288 bytes"
    ):
        convert_folder(source, tmp_path / "csc", memory_budget=100)
    convert_folder(source, tmp_path / "least", memory_budget=288)
    with pytest.raises(DatasetNotFoundError, match="the folder has no edges"):
        convert_folder(save_arrays(tmp_path / "empty", x=np.ones((3, 1))), tmp_path / "csc")
    both = save_arrays(
        tmp_path / "both", edge_index=np.zeros((2, 1), int), src=np.zeros(1, int), dst=np.zeros(1, int)
    )
    with pytest.raises(DatasetError, match="is there too; remove one of the two"):
        convert_folder(both, tmp_path / "csc")
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(("row", "value"), [(0, 20), (1, 20), (1, -1), (0, 1 << 40)])
def test_ids_that_are_no_nodes_are_named(tmp_path: Path, row: int, value: int) -> None:
    index = tiny_dataset().edge_index.numpy().copy()
    index[row, 41] = value
    source = save_arrays(tmp_path / "list", edge_index=index, x=np.ones((20, 1), np.float32))
    with pytest.raises(DatasetError, match=rf"edge_index\.npy: .* node id {value} at position \[{row}, 41\]"):
        convert_folder(source, tmp_path / "csc")
    assert not (tmp_path / ".csc.converting").exists()
    source = save_arrays(tmp_path / "columns", src=index[0], dst=index[1], x=np.ones((20, 1), np.float32))
    with pytest.raises(DatasetError, match=rf"{('src', 'dst')[row]}\.npy: .* node id {value} at"):
        convert_folder(source, tmp_path / "csc")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_folder(tiny_dataset(), tmp_path / "list")
    assert (
        batchgnn("convert", source, tmp_path / "csc", "--memory-budget", "4MiB", "--edge-ids", "--copy") == 0
    )
    said = capsys.readouterr()
    assert f"batchgnn train {tmp_path / 'csc'}" in said.out
    assert "buckets" in said.err
    assert read_folder(tmp_path / "csc").edge_index.equal(tiny_dataset().edge_index)
    assert batchgnn("convert", source, tmp_path / "csc") == 2
    assert "exists already" in capsys.readouterr().err
