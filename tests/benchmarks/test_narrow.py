"""The benchmark of rows of one byte, its parts on a small graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmark import narrow
from benchmark.narrow import jobs
from benchmark.support import ranks
from benchmark.support.cli import read_json
from benchmark.support.graphs import GraphFolder, dataset_folder

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
