"""Benchmarks: their result files, hosts, and tiny runs of their scripts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmark import narrow
from benchmark.accuracy import absences
from benchmark.narrow import jobs
from benchmark.report import machine
from benchmark.support import cli, namespaces, ranks
from benchmark.support.cli import read_json
from benchmark.support.graphs import GraphFolder, dataset_folder
from benchmark.support.machine import describe
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


def test_what_was_not_asked_for_stays_absent() -> None:
    stored = {"cora pyg": "no pyg-lib", "cora ours": "killed", "arxiv pyg": "no pyg-lib"}
    asked = [("cora", "ours"), ("cora", "pyg"), ("pubmed", "pyg")]
    assert absences(stored, {"cora pyg": "too old"}, asked) == {
        "arxiv pyg": "no pyg-lib",
        "cora pyg": "too old",
    }


# Namespaces #######################################################################################

OTHER = """
import os
from benchmark.support import namespaces
with namespaces.hosts(1, namespaces.UNLIMITED):
    print(os.getpid(), flush=True)
    input()
"""


def standing() -> set[str]:
    """Returns the names of all namespaces and links."""
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


# Batches on a device ##############################################################################


ROOT = Path(__file__).resolve().parents[2]


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
    assert report["left_out"] == [] and len(report["bits"]) == 3 and all(report["bits"].values())
    rows = {row["name"]: row for row in report["rows"]}
    assert {"features on the device", "features on the host", "links", "typed"} <= rows.keys()
    assert all(row["busy"] > 0 and len(row["fed_ms"]) == 2 for row in rows.values())
    cached = rows["host, a cache of a fifth"]["per_minibatch"]
    assert cached["rows_from_device_cache"] > 0 and cached["rows_over_bus"] > 0


# Rows of one byte #################################################################################


FORMS = {"loading": jobs.LOADED, "steps": tuple(jobs.FORMS)}


def test_loading_and_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmark.support.graphs.CACHE", tmp_path)
    graph = dataset_folder("small", "generated", nodes=500, degree=6.0, features=8)
    order = {"graph": str(graph.path), "fanouts": [3, 2], "batch_size": 20, "hidden": 8, "batches": 2}
    for name, job in (("loading", jobs.loading), ("steps", jobs.steps)):
        told = {**order, "rounds": 2, "threads": 1, "model": "gat", "answer": str(tmp_path / name)}
        job(told)
        found = read_json(tmp_path / name)
        assert set(found["seconds"]) == set(FORMS[name])
        assert all(len(seconds) == 2 for seconds in found["seconds"].values())
        assert found["bytes"]["int8"] * 4 == found["bytes"]["float32"] == 4 * 500 * 8
    assert GraphFolder.open(graph.path).num_features == 8 and ranks.JOBS["preparation"]


def test_the_page_shows_what_was_measured() -> None:
    seconds = {"float32": [0.2, 0.3], "bfloat16": [0.1], "int8": [0.15], "int8, bfloat16": [0.12]}
    wire = [
        {"form": form, "features": {"bytes": size}, "wall": wall, "row_bytes": row}
        for form, size, wall, row in (("float32", 4e6, 2.0, 404), ("int8", 1e6, 0.6, 104))
    ]
    accuracy = {"setting": "cora", "model": "sage", "seeds": 20, "mean": {"int8": 81.0, "float32": 81.1}}
    accuracy |= {"mean_difference": -0.1, "lower_95": -0.3}
    result = {
        "parts": {
            "steps": {"series": [{"setting": "1 thread", "model": "gcn", "seconds": seconds}]},
            "wire": {"series": wire},
            "accuracy": {"series": [accuracy]},
        }
    }
    text = narrow.table(result)
    assert "| GCN, 1 thread | int8 | 150.0 | 1.50 | at most 1.0 |" in text
    assert "| int8 | 104 | 1.0 | 0.60 |" in text and "float32: 0.30, asked" in text
    assert "| cora, SAGE | 20 | 81.00 | 81.10 | -0.10 | -0.30 |" in text
    assert "Not measured: loading." in text
    assert narrow.plot(result).axes
