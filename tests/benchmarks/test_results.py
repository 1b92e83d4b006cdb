"""Benchmarks: their result files, hosts, and tiny runs of their scripts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmark import disk, levels
from benchmark.disk import jobs as disk_jobs
from benchmark.disk import measure
from benchmark.narrow import jobs
from benchmark.report import machine
from benchmark.support import cli, namespaces, ranks
from benchmark.support.cli import read_json
from benchmark.support.graphs import GraphFolder, dataset_folder
from benchmark.support.machine import describe
from pyg_batchgnn.data import PapersSpec, generate_papers_folder
from pyg_batchgnn.disk import DiskTable
from pyg_batchgnn.ops import bfloat16_level, set_bfloat16_level
from tests.support.tiers import all_only
from tests.support.two_hosts import missing_for_two_hosts


def test_every_result_keeps_its_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three data sets are measured anew elsewhere, one with the same figures; the file had
    one machine for all."""
    path, here = tmp_path / "accuracy.json", describe()
    old: dict[str, Any] = {"cora": {"seeds": 1, "mean": {2: 1.5}}, "arxiv": {"seeds": 2}, "pubmed": {}}
    cli.write_json(path, {"benchmark": "accuracy", "datasets": old, "machine": {**here, "cpu": "First"}})
    before = machine(cli.read_json(path))
    monkeypatch.setattr(cli, "describe", lambda: {**here, "cpu": "Second", "load_average": 9.0})
    cli.write_datasets(path, {"cora": old["cora"], "arxiv": {"seeds": 3}}, absent={})
    found = cli.read_json(path)
    assert found["datasets"]["arxiv"]["seeds"] == 3 and "machine" not in found
    cpus = {name: one["machine"]["cpu"] for name, one in found["datasets"].items()}
    assert cpus == {"cora": "First", "arxiv": "Second", "pubmed": "First"}
    text = " ".join(machine(found).split())
    assert text.startswith(f"cora, pubmed: {' '.join(before.split())} arxiv: Second, ")
    del found["datasets"]["arxiv"]
    assert machine(found) == before


OTHER = """
import os
from benchmark.support import namespaces
with namespaces.hosts(1, namespaces.UNLIMITED):
    print(os.getpid(), flush=True)
    input()
"""


def standing() -> set[str]:
    spaces, links = (
        subprocess.run(["ip", *words], capture_output=True, text=True, check=True).stdout.splitlines()
        for words in (("netns", "list"), ("-o", "link"))
    )
    return {line.split()[0] for line in spaces} | {
        line.split()[1].rstrip(":").split("@")[0] for line in links
    }


@pytest.mark.timeout(60)
def test_a_run_removes_its_own_hosts_and_those_of_dead_processes() -> None:
    if missing := missing_for_two_hosts():
        pytest.skip(f"hosts are network namespaces: {missing}")
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    owner = int(other.stdout.readline())
    theirs, ours = (
        {f"{namespaces.prefix_of(one)}{end}" for end in ("0", "br", "v0")} for one in (owner, os.getpid())
    )
    with namespaces.hosts(1, namespaces.UNLIMITED):
        assert theirs | ours <= standing()
        subprocess.run(namespaces.command_on(0, ["true"]), check=True)
    assert theirs <= standing() and not ours & standing()
    other.kill()  # leaves its hosts behind
    other.communicate()
    with namespaces.hosts(1, namespaces.UNLIMITED):
        assert ours <= standing() and not theirs & standing()


ROOT = Path(__file__).resolve().parents[2]


@all_only
def test_the_tiny_run(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "benchmark/gpu/run.py",
            "--tiny",
            "--device",
            "cpu",
            "--json",
            tmp_path / "gpu.json",
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_WAIT_POLICY": "passive"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "gpu.json").read_text())
    assert report["left_out"] == [] and len(report["bits"]) == 5 and all(report["bits"].values())
    rows = {row["name"]: row for row in report["rows"]}
    assert {"features on the device", "features on the host", "links", "typed"} <= rows.keys()
    assert all(row["busy"] > 0 and len(row["fed_ms"]) == 2 for row in rows.values())
    assert report["ends"]["threads"] == [] and report["ends"]["locked_bytes"] == 0
    assert report["times"]["without device=, pin_memory=True"].keys() < rows.keys()
    cached = rows["host, a cache of a fifth"]["per_minibatch"]
    assert cached["rows_from_device_cache"] > 0 and cached["rows_over_bus"] > 0


WRITTEN = [f"{name}, written" for name in jobs.LOADED]
FORMS = {"loading": ["none", *jobs.LOADED, *WRITTEN], "steps": list(jobs.FORMS)}


def test_loading_and_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmark.support.graphs.CACHE", tmp_path)
    graph = dataset_folder("small", "generated", nodes=500, degree=6.0, features=8)
    order = {"graph": str(graph.path), "fanouts": [3, 2], "batch_size": 20, "hidden": 8, "batches": 2}
    for name, job in (("loading", jobs.loading), ("steps", jobs.steps)):
        found = job({**order, "rounds": 2, "threads": 1, "model": "gat"})
        assert set(found["seconds"]) == set(FORMS[name])
        assert all(len(seconds) == 2 for seconds in found["seconds"].values())
        assert found["bytes"]["int8"] * 4 == found["bytes"]["float32"] == 4 * 500 * 8
    assert GraphFolder.open(graph.path).num_features == 8 and ranks.JOBS["preparation"]


def test_levels_train_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmark.support.graphs.CACHE", tmp_path)
    graph = dataset_folder("small", "generated", nodes=500, degree=6.0, features=8)
    monkeypatch.setattr(levels, "graph_of", lambda *_: graph)
    used = bfloat16_level()
    try:
        found = levels.losses([levels.FLOAT32, "widened"], 3)
    finally:
        set_bfloat16_level(used)
    assert found["widened"] == pytest.approx(found["float32"], rel=0.02)
    assert found["widened"] != found["float32"]
    assert found["float32"] == sorted(found["float32"], reverse=True)
    result = {"series": [{"losses": found, "products": {}, "steps": {}}]}
    assert f"| loss of the last epoch | {found['float32'][-1]:.4f} |" in levels.table(result)
    assert len(levels.plot(result).axes[0].lines) == 2


NODES = 12_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generate_papers_folder(PapersSpec(nodes=NODES), tmp_path_factory.mktemp("disk") / "papers")


def test_distinct_pages_are_those_of_the_rows(folder: Path) -> None:
    """Three minibatches that together have all training nodes, against pages counted byte by
    byte."""
    found = disk_jobs.count_pages(disk_jobs.Order(str(folder), steps=1))
    data, nodes = disk_jobs.graph(str(folder))
    table: DiskTable = disk_jobs.table_of(data.x)
    batch = next(iter(disk_jobs.new_loader(data, nodes, disk_jobs.Order(str(folder)), 1 << 30)))
    offset, size = table.offset, table.row_bytes
    touched = {(offset + node * size + byte) // 4096 for node in batch.node.tolist() for byte in range(size)}
    assert found["pages"] == len(touched) and found["rows"] == batch.node.numel()


def test_parts_are_measured_and_shown_together(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts are stored call by call. Here their jobs run in this process, to save time."""
    monkeypatch.setattr(measure, "in_process", lambda *told, **_: disk_jobs.run(dict(told[2])))
    where = ["--folder", str(folder), "--tenth", str(folder), "--results", str(tmp_path)]
    small = ["--few-steps", "1", "--units", "1", "--memory-budget", "8", "--epochs", "4"]
    disk.main([*where, *small, "--parts", "epoch", "pages", "fits"])
    disk.main([*where, "--parts", "topology", "--edge-steps", "4", "--edge-budget", "1e-5"])
    for budget in ("0.5", "0.25", "0.5"):
        disk.main([*where, *small, "--parts", "budgets", "--budgets", budget])
    result = read_json(tmp_path / f"disk-{NODES}.json")
    assert list(result["parts"]) == ["epoch", "pages", "fits", "topology", "budgets"]
    assert result["graph"]["nodes"] == NODES
    one, *others = result["parts"]["epoch"]["series"]
    assert len(others) == 3 and one["read"]["loss"] != others[0]["read"]["loss"]
    assert others[2]["held"] == others[1]["held"] != others[0]["held"]
    assert one["read"]["steps"] == one["held"]["steps"] == one["read"]["epoch"]
    budgets = [one["loader_budget"] for one in result["parts"]["budgets"]["series"]]
    assert budgets == [1 << 28, 1 << 29]
    of_edges = result["parts"]["topology"]["series"]
    assert len({one["stats"]["edges"] for one in of_edges}) == 1
    assert [one["edges"] == "file" for one in of_edges] == [
        one["stats"]["topology_edges"] > 0 for one in of_edges
    ]
    text = disk.table(result)
    assert "| the mean of 4 epochs, over the larger of" in text
    assert "Not measured: reads, mapped, peer, sort, limited." in text
    assert "seconds of the same steps with rows held" in text and "| tensor |" in text
