"""Benchmarks: tiny runs of their scripts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmark import disk
from benchmark.disk import jobs as disk_jobs
from benchmark.disk import measure
from benchmark.support.cli import read_json
from pyg_batchgnn.data import PapersSpec, generate_papers_folder
from pyg_batchgnn.disk import DiskTable
from tests.support.tiers import all_only

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


NODES = 12_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generate_papers_folder(PapersSpec(nodes=NODES), tmp_path_factory.mktemp("disk") / "papers")


def test_distinct_pages_are_those_of_the_rows(folder: Path) -> None:
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
