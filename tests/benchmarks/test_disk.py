"""The benchmark of rows on disk: its meters, and its parts on a small graph."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmark import disk
from benchmark.disk import jobs, measure, meters, page
from benchmark.support.cli import read_json
from pyg_batchgnn.data import PapersSpec, generate_papers_folder
from pyg_batchgnn.disk import DiskReader, DiskTable

NODES = 12_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generate_papers_folder(PapersSpec(nodes=NODES), tmp_path_factory.mktemp("disk") / "papers")


# Meters ###########################################################################################


def test_folded_memory_is_the_same_memory_again_and_again() -> None:
    size, times = 4 * os.sysconf("SC_PAGE_SIZE"), 3
    found = meters.folded_memory(size, times)
    found[:size] = np.random.default_rng(0).integers(256, size=size)
    assert np.array_equal(found, np.tile(found[:size].copy(), times))
    found[size + 5] += 1
    assert found[5] == found[size + 5] == found[2 * size + 5]


def test_folded_rows_are_those_of_the_file_modulo_a_tenth(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(-99, 99, size=(80_003, 3), dtype=np.int16)
    np.save(tmp_path / "x.npy", values)
    labels = torch.arange(len(values))
    x, y = jobs.folded(torch.from_numpy(np.load(tmp_path / "x.npy", mmap_mode="c")), labels)
    rows = 2 * jobs.PAGE  # the least number of whole pages of rows above a tenth
    assert np.array_equal(x.numpy(), values[np.arange(len(values)) % rows])
    assert torch.equal(y, labels % rows)


def test_pages_in_the_page_cache_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(10 * meters.mmap.PAGESIZE + 1))
    assert meters.cached_pages(path) == 11


def test_a_peak_is_at_least_what_is_held() -> None:
    peak = meters.PeakMemory()
    before = peak.sample()
    held = np.ones(64 << 20, np.uint8)
    assert peak.sample() - before > held.nbytes // 2
    assert peak.bytes == sum(peak.by_kind.values()) > 0
    peak.close()


def test_reads_are_noted_with_the_least_time_of_all_gaps(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DiskReader, "read", DiskReader.read)  # is put back
    noted = jobs.note_reads()
    data, _ = jobs.graph(str(folder))
    reader = DiskReader(jobs.table_of(data.x))
    row, out = torch.arange(0, NODES, 7), torch.empty(NODES, data.x.size(1), dtype=data.x.dtype)
    reader.read(row, out)
    least = min(plan.seconds for plan in reader.rates.plans(reader._rows, row, reader._file.rule))
    assert [one["rows"] for one in noted] == [len(row)] and noted[0]["least"] == least
    assert torch.equal(out[: len(row)].view(torch.int16), data.x[row].view(torch.int16))
    reader.close()


def test_distinct_pages_are_those_of_the_rows(folder: Path) -> None:
    """Three minibatches that together have all training nodes, against pages counted byte by
    byte."""
    found = jobs.count_pages(jobs.Order(str(folder), steps=1))
    data, nodes = jobs.graph(str(folder))
    table: DiskTable = jobs.table_of(data.x)
    batch = next(iter(jobs.new_loader(data, nodes, jobs.Order(str(folder)), 1 << 30)))
    offset, size = table.offset, table.row_bytes
    touched = {(offset + node * size + byte) // 4096 for node in batch.node.tolist() for byte in range(size)}
    assert found["pages"] == len(touched) and found["rows"] == batch.node.numel()


# Parts ############################################################################################


def test_parts_are_measured_and_shown_together(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts are stored call by call. Here their jobs run in this process, to save time."""
    monkeypatch.setattr(DiskReader, "read", DiskReader.read)  # is put back
    monkeypatch.setattr(measure, "in_process", lambda *told, **_: jobs.run(dict(told[2])))
    where = ["--folder", str(folder), "--tenth", str(folder), "--results", str(tmp_path)]
    small = ["--few-steps", "1", "--units", "1", "--memory-budget", "8"]
    disk.main([*where, *small, "--parts", "epoch", "pages", "fits"])
    disk.main([*where, "--parts", "topology", "--edge-steps", "4", "--edge-budget", "1e-5"])
    for budget in ("0.5", "0.25", "0.5"):
        disk.main([*where, *small, "--parts", "budgets", "--budgets", budget])
    result = read_json(tmp_path / f"disk-{NODES}.json")
    assert list(result["parts"]) == ["epoch", "pages", "fits", "topology", "budgets"]
    assert result["graph"]["nodes"] == NODES
    one, *others = result["parts"]["epoch"]["series"]
    assert len(others) == 2 and one["read"]["loss"] != others[0]["read"]["loss"]
    assert one["read"]["steps"] == one["held"]["steps"] == one["read"]["epoch"]
    budgets = [one["loader_budget"] for one in result["parts"]["budgets"]["series"]]
    assert budgets == [1 << 28, 1 << 29]
    of_edges = result["parts"]["topology"]["series"]
    assert len({one["stats"]["edges"] for one in of_edges}) == 1
    assert [one["edges"] == "file" for one in of_edges] == [
        one["stats"]["topology_edges"] > 0 for one in of_edges
    ]
    text = disk.table(result)
    assert "| the first epoch, over the larger of" in text
    assert "Not measured: reads, mapped, peer, sort, limited." in text
    assert "seconds of the same steps with rows held" in text and "| tensor |" in text


def test_an_epoch_is_bounded_by_steps_and_by_bytes() -> None:
    read = {"seconds": 100.0, "steps": 50, "epoch": 50, "stats": {"disk_bytes": 4e9}}
    one = {"read": read, "held": {"seconds": 10.0, "steps": 10}, "rates": [1e9, 3e9]}
    assert page.bounds(one) == (50.0, 2.0)
