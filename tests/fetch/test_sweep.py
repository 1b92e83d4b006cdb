"""Sweeps over a file whose rows' uses are known, and rows that are handed out for a time."""

from __future__ import annotations

import gc
import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.fetch.sweep import Sweep, first_uses, followed, simulate
from pyg_batchgnn.ops import NEVER

ROWS = 12
strings = st.lists(st.sets(st.integers(0, ROWS - 1)), min_size=1, max_size=7)


def vectors(string: list[set[int]]) -> list[Tensor]:
    return [torch.tensor(sorted(needed), dtype=torch.int64) for needed in string]


def use_after(string: list[set[int]], row: int, number: int) -> int:
    """Returns the next unit after one that needs a row, or a large number."""
    later = (at for at in range(number + 1, len(string)) if row in string[at])
    return next(later, NEVER)


def comes_back(row: int, number: int, period: int) -> int:
    """Returns before which unit a row's range is read next, after the reading before ``number``."""
    at = row // -(-ROWS // period)
    return next(unit for unit in itertools.count(number + 1) if unit % period == at)


def by_hand(string: list[set[int]], capacity: int, period: int, in_use: int) -> list[int] | None:
    """Returns how many rows are read before each unit, in plain Python.

    None if they do not fit, or if that is not for the rule alone to say.
    """
    here: set[int] = set()
    reads = []
    for number, needed in enumerate(string):
        ranges = range(period) if number == 0 else [number % period]
        wanted = {
            row
            for row in range(ROWS)
            if row // -(-ROWS // period) in ranges
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


@given(strings, st.integers(0, ROWS + 1), st.integers(1, 6), st.integers(0, 2))
def test_as_many_rows_are_read_as_by_hand(
    string: list[set[int]], capacity: int, period: int, in_use: int
) -> None:
    expected = by_hand(string, capacity, period, in_use)
    if expected is not None:  # else some rows are read late, where that helps
        assert simulate(vectors(string), ROWS, capacity, period, in_use) == expected


@given(strings, st.integers(1, 6))
def test_nothing_is_read_twice_where_all_fits(string: list[set[int]], period: int) -> None:
    found = simulate(vectors(string), ROWS, ROWS, period, 1)
    assert found is not None and sum(found) == len(set().union(*string))


def fewest(string: list[set[int]], capacity: int) -> int:
    """Returns the fewest rows that any choice of what leaves reads, by trying all.

    The whole file is passed before each unit, and no unit but the one that is prepared is in use.
    """
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


@given(
    st.lists(strings, min_size=1, max_size=3), st.integers(0, ROWS + 1), st.integers(1, 6), st.integers(0, 2)
)
def test_slots_hold_the_rows_of_their_units(
    epochs: list[list[set[int]]], capacity: int, period: int, in_use: int
) -> None:
    """Over several epochs, while the units before may be in use, and where some do not fit."""
    table, sweep, number = torch.arange(ROWS), Sweep(ROWS, capacity), 0
    memory, using = torch.full((capacity,), -1), list[tuple[Tensor, Tensor]]()
    for string in epochs:
        first, following = first_uses(vectors(string), ROWS, number)
        sweep.begin(first, number, period)
        for needed, later in zip(vectors(string), following, strict=True):
            assert sweep.follows(number)
            reading = sweep.prepare(number, needed, later, number - in_use)
            assert len(set(reading.slots.tolist())) == reading.slots.numel()
            assert reading.rows.tolist() == sorted(set(reading.rows.tolist()))
            memory[reading.slots] = table[reading.rows]
            for rows, slot in using[len(using) - in_use :] if in_use else []:
                assert torch.equal(memory[slot], rows)
            if reading.unit is None:
                here = sweep.find(needed)
                assert torch.equal(memory[here[here >= 0]], needed[here >= 0])
                using.append((needed[:0], needed[:0]))
            else:
                assert torch.equal(memory[reading.unit], needed)
                using.append((needed, reading.unit))
            assert reading.slots.numel() == 0 or int(reading.slots.max()) < capacity
            number += 1


@given(strings, strings, st.integers(0, ROWS + 1), st.integers(1, 6), st.integers(0, 2), st.integers(0, 6))
def test_sweeps_go_on_into_the_next_epoch(
    one: list[set[int]], other: list[set[int]], capacity: int, period: int, in_use: int, at: int
) -> None:
    table, sweep = torch.arange(ROWS), Sweep(ROWS, capacity)
    memory, using, read = torch.full((capacity,), -1), list[tuple[Tensor, Tensor]](), 0
    units = vectors(one + other)
    first, following = first_uses(units[: len(one)], ROWS, 0)
    next_first, more = first_uses(units[len(one) :], ROWS, len(one))
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
    assert fits or capacity < ROWS
    if capacity >= ROWS:
        assert read == len(set().union(*one, *other))


def test_a_longer_sweep_reads_the_file_less_often() -> None:
    """Units of random rows: each pass over the file serves as many units as a sweep has."""
    draws = torch.Generator().manual_seed(0)
    units = [torch.randint(0, 1000, (50,), generator=draws).unique() for _ in range(40)]
    passes = {}
    for period in (1, 4, 10):
        capacity = next(
            size for size in range(50, 1001, 10) if simulate(units, 1000, size, period, 1) is not None
        )
        passes[capacity] = 1 + (len(units) - 1) / period
    assert list(passes) == sorted(passes) and list(passes)[-1] < 500


# Leases ###########################################################################################


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
