"""Fetch groups ask for each distinct node once; rows of files are read in few sweeps."""

from __future__ import annotations

import gc
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.data import NODES
from pyg_batchgnn.fetch import AccessString, Frequencies, as_table
from pyg_batchgnn.fetch.sweep import Sweep, first_uses, followed, simulate
from pyg_batchgnn.ops import NEVER

TABLE_NODES = 6


def _read_only() -> np.ndarray:
    array = np.zeros(TABLE_NODES)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.randn(TABLE_NODES - 1, 2), ["5 rows", "6 nodes"]),
        (torch.randn(3, TABLE_NODES).t(), ["contiguous()"]),
        (torch.randn(TABLE_NODES, 4)[:, :2], ["contiguous()"]),
        (torch.tensor(1.0), ["rows"]),
        (torch.randn(TABLE_NODES, 2).to_sparse(), ["sparse"]),
        (torch.empty(TABLE_NODES, 2, device="meta"), ["meta"]),
        (torch.complex(torch.ones(TABLE_NODES), torch.ones(TABLE_NODES)).conj(), ["contiguous()"]),
        ([1] * TABLE_NODES, ["list"]),
        (_read_only(), ["ndarray"]),
        (np.array(["a"] * TABLE_NODES), ["str_"]),
        (np.zeros(TABLE_NODES)[::-1], ["stride"]),
    ],
)
def test_why_not(value: Any, words: list[str]) -> None:
    reason = as_table(value, TABLE_NODES)
    assert isinstance(reason, str)
    assert all(word in reason for word in words), reason


def test_a_full_disk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    accesses = AccessString({NODES: 100}, 0)
    monkeypatch.setattr("os.pwrite", full)
    with pytest.raises(OSError, match=r"takes 40 bytes more .* set TMPDIR"):
        accesses.append((0, 0, 0), {NODES: torch.arange(10)})


def test_frequencies_tell_how_many_rows_are_needed() -> None:
    """The truth is a power law, of which 32 minibatches are seen."""
    draws = np.random.default_rng(0)
    probability = np.minimum(0.9, 200 / np.arange(1, 50_001) ** 1.1 / 20)

    def minibatch() -> torch.Tensor:
        return torch.from_numpy(np.flatnonzero(draws.random(len(probability)) < probability))

    found = Frequencies.of([minibatch() for _ in range(32)], len(probability))
    for count in (1, 8, 32, 100):
        expected = (1 - (1 - probability) ** count).sum()
        assert found.distinct(count) == pytest.approx(expected, rel=0.15)
    units = found.sample(100, 10)
    assert found.reads(units, int(found.distinct(10)), period=2, in_use=1) is None
    read = []
    for period in (1, 2, 10):
        forecast = found.reads(units, len(probability), period, in_use=1)
        assert forecast is not None
        read.append(forecast[0] + 9 * forecast[1])
    assert read[0] == pytest.approx(found.distinct(100), rel=0.1)
    assert read[0] <= read[1] <= read[2] < found.distinct(200)  # some are for the next epoch


def test_the_longest_sweep_that_fits() -> None:
    draws = torch.Generator().manual_seed(0)
    rows = 200_000  # some of them stand for all
    units = [torch.randint(0, rows, (5000,), generator=draws).unique() for _ in range(40)]
    accesses = AccessString({NODES: rows}, 1 << 30)
    for number, unit in enumerate(units):
        accesses.append((0, number, 0), {NODES: unit})
    found = {}
    for capacity in (1000, 12_000, 30_000, 60_000, rows):
        found[capacity] = accesses.longest_period(NODES, capacity, in_use=1)
        if capacity > 1000:
            assert simulate(units, rows, capacity, found[capacity], 1) is not None
            longer = simulate(units, rows, capacity, int(1.15 * found[capacity]) + 1, 1)
            assert longer is None or capacity == rows
    assert list(found.values()) == sorted(found.values())
    assert found[1000] == 1 and found[rows] >= 39


SWEPT = 12
strings = st.lists(st.sets(st.integers(0, SWEPT - 1)), min_size=1, max_size=7)


def vectors(string: list[set[int]]) -> list[Tensor]:
    return [torch.tensor(sorted(needed), dtype=torch.int64) for needed in string]


def use_after(string: list[set[int]], row: int, number: int) -> int:
    later = (at for at in range(number + 1, len(string)) if row in string[at])
    return next(later, NEVER)


def comes_back(row: int, number: int, period: int) -> int:
    """Returns before which unit a row's range is read next, after the reading before ``number``."""
    at = row // -(-SWEPT // period)
    return next(unit for unit in itertools.count(number + 1) if unit % period == at)


def by_hand(string: list[set[int]], capacity: int, period: int, in_use: int) -> list[int] | None:
    here: set[int] = set()
    reads = []
    for number, needed in enumerate(string):
        ranges = range(period) if number == 0 else [number % period]
        wanted = {
            row
            for row in range(SWEPT)
            if row // -(-SWEPT // period) in ranges
            and row not in here
            and use_after(string, row, number - 1) < comes_back(row, number, period)
        }
        reads.append(len(wanted))
        kept = {row for before in string[max(0, number - in_use) : number] for row in before} | needed
        may_leave = [
            row
            for row in here - kept
            if use_after(string, row, number - 1) >= comes_back(row, number, period)
        ]
        may_leave.sort(key=lambda row: use_after(string, row, number))
        leaving = max(0, len(here | wanted) - capacity)
        if leaving > len(may_leave):
            return None
        uses = [use_after(string, row, number) for row in may_leave]
        if 0 < leaving < len(uses) and uses[-leaving] == uses[-leaving - 1] < NEVER:
            return None  # of two that are needed next by one unit either may leave
        here = (here | wanted) - set(may_leave[len(may_leave) - leaving :])
        assert needed <= here
    return reads


@given(strings, st.integers(0, SWEPT + 1), st.integers(1, 6), st.integers(0, 2))
def test_as_many_rows_are_read_as_by_hand(
    string: list[set[int]], capacity: int, period: int, in_use: int
) -> None:
    expected = by_hand(string, capacity, period, in_use)
    if expected is not None:  # else some rows are read late, where that helps
        assert simulate(vectors(string), SWEPT, capacity, period, in_use) == expected


def fewest(string: list[set[int]], capacity: int) -> int:
    """Returns the fewest rows that any choice of what leaves reads, by trying all. The whole file
    is passed before each unit, and no unit but the one that is prepared is in use."""
    costs = {frozenset[int](): 0}
    for needed in string:
        after: dict[frozenset[int], int] = {}
        for here, cost in costs.items():
            paid, others = cost + len(needed - here), sorted(here - needed)
            for count in range(min(len(others), capacity - len(needed)) + 1):
                for kept in itertools.combinations(others, count):
                    state = frozenset(needed | set(kept))
                    after[state] = min(paid, after.get(state, paid))
        costs = after
    return min(costs.values())


@given(st.lists(st.sets(st.integers(0, 5)), min_size=1, max_size=4), st.integers(0, 6))
def test_no_other_choice_reads_fewer(string: list[set[int]], capacity: int) -> None:
    read = simulate(vectors(string), 6, capacity, 1, 0)
    assert (read is not None) == (max(map(len, string)) <= capacity)
    if read is not None:
        assert sum(read) == fewest(string, capacity)


@given(strings, strings, st.integers(0, SWEPT + 1), st.integers(1, 6), st.integers(0, 2), st.integers(0, 6))
def test_sweeps_go_on_into_the_next_epoch(
    one: list[set[int]], other: list[set[int]], capacity: int, period: int, in_use: int, at: int
) -> None:
    table, sweep = torch.arange(SWEPT), Sweep(SWEPT, capacity)
    memory, using, read = torch.full((capacity,), -1), list[tuple[Tensor, Tensor]](), 0
    units = vectors(one + other)
    first, following = first_uses(units[: len(one)], SWEPT, 0)
    next_first, more = first_uses(units[len(one) :], SWEPT, len(one))
    following += more
    sweep.begin(first, 0, period)
    told, fits = min(at, len(one) - 1), True
    for number, (needed, later) in enumerate(zip(units, following, strict=True)):
        if number == told:
            sweep.extend(next_first)
        if told <= number < len(one):
            later = followed(later, needed, next_first)
        reading = sweep.prepare(number, needed, later, number - in_use)
        memory[reading.slots] = table[reading.rows]
        read += reading.rows.numel()
        for rows, slot in using[len(using) - in_use :] if in_use else []:
            assert torch.equal(memory[slot], rows)
        fits = fits and reading.unit is not None
        if reading.unit is not None:
            assert torch.equal(memory[reading.unit], needed)
        using.append((needed, reading.unit) if reading.unit is not None else (needed[:0], needed[:0]))
    assert fits or capacity < SWEPT
    if capacity >= SWEPT:
        assert read == len(set().union(*one, *other))


def test_a_lease_lives_as_long_as_any_view_of_it() -> None:
    table, outstanding = torch.arange(12.0).view(6, 2), torch.zeros(1, dtype=torch.int32)
    one, other = ops.lease_rows(table, 0, outstanding), ops.lease_rows(table, 2, outstanding)
    assert torch.equal(one, table) and torch.equal(other, table[2:])
    assert int(outstanding) == 2
    with pytest.raises(RuntimeError, match="leased already"):
        ops.lease_rows(table, 2, outstanding)
    view = other[1:, 0].detach()
    del one, other
    gc.collect()
    assert int(outstanding) == 1
    table[4, 0] = -1
    assert view.tolist() == [6, -1, 10]
    del table  # the lease keeps the memory
    assert view.tolist() == [6, -1, 10]
    del view
    assert int(outstanding) == 0
