"""Rates of disks, and the gaps that follow from them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from pyg_batchgnn.disk import GAPS, DiskRates, DiskReader, DiskTable, rates
from pyg_batchgnn.disk.file import SourceFile
from pyg_batchgnn.ops import RowFile, RunRule

RATES = DiskRates((4096, 8192, 1 << 18), (1e-5, 1.2e-5, 2e-4))
RULE = RunRule(block=512)


def test_seconds_lie_between_those_that_are_known() -> None:
    found = RATES.seconds_of(np.array([512, 4096, 6144, 8192, 1 << 18, 1 << 19]))
    assert found.tolist() == pytest.approx([1e-5, 1e-5, 1.1e-5, 1.2e-5, 2e-4, 4e-4])
    one = DiskRates((1000,), (1e-3,))
    assert one.seconds_of(np.array([10, 2000])).tolist() == pytest.approx([1e-3, 2e-3])
    assert RATES.bytes_per_second == pytest.approx((1 << 18) / 2e-4)


@pytest.mark.parametrize(
    ("sizes", "seconds"),
    [((), ()), ((4096, 512), (1.0, 1.0)), ((0,), (1.0,)), ((512,), (1.0, 2.0)), ((512,), (0.0,))],
)
def test_bad_rates(sizes: tuple[int, ...], seconds: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"must ascend|a time above 0"):
        DiskRates(sizes, seconds)


@pytest.mark.parametrize("share", [0.5, 0.05, 0.005])
def test_the_gap_of_the_least_time(share: float) -> None:
    row = (torch.rand(200_000, generator=torch.Generator().manual_seed(1)) < share).nonzero().view(-1)
    rows = RowFile(128, 256, 200_000)
    plans = RATES.plans(rows, row, RULE)
    assert [plan.gap for plan in plans] == list(GAPS)
    best = RATES.choose_gap(rows, row, RULE)
    assert best.seconds == min(plan.seconds for plan in plans)
    # All rows together, each in a run of its own, and what the formula gives for one of them.
    assert plans[0].operations > plans[-1].operations and plans[0].bytes < plans[-1].bytes
    for plan in plans:
        assert plan.bytes % 512 == 0 and plan.bytes >= len(row) * 256
    dear = DiskRates((512, 1 << 18), (1e-2, 1.0001e-2)).choose_gap(rows, row, RULE)
    cheap = DiskRates((512, 1 << 18), (1e-9, 1e-9 * 512)).choose_gap(rows, row, RULE)
    assert dear.operations == min(plan.operations for plan in plans)
    assert cheap.bytes == plans[0].bytes


def test_reading_nothing_takes_nothing() -> None:
    plan = RATES.choose_gap(RowFile(0, 8, 10), torch.arange(0), RULE)
    assert (plan.gap, plan.bytes, plan.operations, plan.seconds) == (0, 0, 0, 0.0)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No disk has been measured; measuring is short."""
    monkeypatch.setattr(rates, "_measured", {})
    monkeypatch.setattr(rates, "_SECONDS_EACH", 0.005)


def a_reader(path: Path, size: int) -> DiskReader:
    path.touch()
    os.truncate(path, size)  # nothing but a hole
    return DiskReader(DiskTable(str(path), 0, size // 256, (256,), torch.uint8))


def test_a_disk_is_measured_once(tmp_path: Path, fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    times = []
    true = rates.measure_rates
    monkeypatch.setattr(rates, "measure_rates", lambda file: times.append(file.path) or true(file, 0.005))
    small = a_reader(tmp_path / "small", 1 << 20)
    assert small.rates is rates.ASSUMED and not times
    large = a_reader(tmp_path / "large", 64 << 20)
    again = a_reader(tmp_path / "again", 65 << 20)
    assert large.rates is again.rates and times == [str(tmp_path / "large")]
    assert a_reader(tmp_path / "other", 1 << 20).rates is large.rates
    found = large.rates
    assert found.sizes[-1] == 1 << 18 and list(found.seconds) == sorted(found.seconds)
    given = DiskReader(large.table, RATES)
    assert given.rates is RATES


def test_a_disk_that_gives_less_after_a_burst(
    tmp_path: Path, fresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After two groups of reads operations take ten times as long, by a clock that reads move."""
    monkeypatch.setattr(rates, "_SUSTAINED", 9.0)
    monkeypatch.setattr(rates, "_measured", {})
    now, read = [0.0], [0]

    def seconds_of_reads(file: SourceFile, size: int, count: int, draws: torch.Generator) -> float:
        read[0] += count * size
        each = 1e-3 * size / (1 << 18) if read[0] > 2 * count * size else 1e-4
        now[0] += count * each
        return each

    monkeypatch.setattr(rates, "measure_rates", lambda _: RATES)
    monkeypatch.setattr(rates, "_seconds_of_reads", seconds_of_reads)
    monkeypatch.setattr(rates.time, "perf_counter", lambda: now[0])
    reader = a_reader(tmp_path / "large", 64 << 20)
    given = list[int]()
    monkeypatch.setattr(rates.ops, "populate", lambda memory: given.append(memory.nbytes))
    assert reader.pace(0.5) == pytest.approx([(1 << 18) / 1e-4, (1 << 18) / 1e-3]) and now[0] < 11
    assert 0 <= read[0] - 2 * sum(given) < 2 * len(given)
    assert reader.rates is RATES
    assert DiskReader(reader.table, RATES).pace() == (RATES.bytes_per_second,) * 2


def test_files_too_small_to_measure_are_taken_to_last(tmp_path: Path, fresh: None) -> None:
    assert a_reader(tmp_path / "x", 1 << 20).pace().kept_up == rates.ASSUMED.bytes_per_second


def test_measuring_reads_every_place_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    path.touch()
    os.truncate(path, 64 << 20)
    true, seen = SourceFile.read, []

    def read(*arguments: object) -> object:
        found = true(*arguments)
        seen.append((found.operations, found.bytes, len(arguments[2])))
        return found

    monkeypatch.setattr(SourceFile, "read", read)
    found = rates.measure_rates(SourceFile(str(path)), 0.005)
    assert seen and all(operations == count for operations, _, count in seen)
    assert {size // operations for operations, size, _ in seen} == set(found.sizes)
