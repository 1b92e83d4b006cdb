"""Result files of benchmarks that were measured in pieces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmark.accuracy import absences
from benchmark.report import machine
from benchmark.support import cli
from benchmark.support.machine import describe


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
