"""Fetch groups ask for each distinct node once; rows of files are read in few sweeps."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from pyg_batchgnn import ops
from pyg_batchgnn.data import NODES, Group, RowKind
from pyg_batchgnn.data import NODES as GROUP
from pyg_batchgnn.disk import are_mapped, is_mapped
from pyg_batchgnn.fetch import AccessString, BlockFetcher, FetchGroup, Frequencies, InPlaceFetcher, as_table
from pyg_batchgnn.fetch.sweep import Sweep, first_uses, followed, simulate
from pyg_batchgnn.ops import NEVER
from pyg_batchgnn.sample import Placement, SampledMinibatch
from tests.support.sampling_cases import only_nodes

COUNT = 200
Rows: TypeAlias = dict[Group, dict[str, Tensor]]


def minibatch(node: list[int]) -> SampledMinibatch:
    return only_nodes(torch.tensor(node, dtype=torch.int64))


@pytest.mark.parametrize(
    "nodes",
    [
        [[3, 1, 2]],
        [[5, 7], [7, 5]],
        [[0], [COUNT - 1], [0, COUNT - 1]],
        [[4, 4, 4], [4]],
        [[], [1], []],
        [[]],
        [list(range(COUNT))[::-1], list(range(0, COUNT, 3))],
    ],
)
def test_each_node_once_and_every_row_found(nodes: list[list[int]]) -> None:
    table = torch.arange(COUNT * 2.0).view(COUNT, 2)
    asked: list[Tensor] = []

    def fetch(nodes: Mapping[Group, Tensor]) -> Rows:
        asked.append(nodes[NODES])
        return {NODES: {"x": table[nodes[NODES]]}}

    given = [minibatch(node) for node in nodes]
    ready = BlockFetcher(fetch, [COUNT]).fetch(FetchGroup(given)).minibatches
    assert [node.tolist() for node in asked] == [sorted({node for one in nodes for node in one})]
    for one, before in zip(ready, given, strict=True):
        assert one.node is before.node and one.block is ready[0].block
        assert torch.equal(one.attribute("x"), table[one.node])
        assert torch.equal(one.attribute("x", 1), table[one.node[:1]])


def test_an_unknown_attribute_is_named() -> None:
    fetcher = BlockFetcher(lambda nodes: {NODES: {"x": nodes[NODES]}}, [COUNT])
    (ready,) = fetcher.fetch(FetchGroup([minibatch([1])])).minibatches
    with pytest.raises(KeyError, match=r"'z'.*'x'"):
        ready.attribute("z")


TABLE_NODES = 6


@pytest.mark.parametrize(
    "value",
    [
        torch.randn(TABLE_NODES, 3),
        torch.randn(TABLE_NODES, 3).half(),
        torch.randn(TABLE_NODES + 1, 3).bfloat16(),
        torch.arange(TABLE_NODES),
        nn.Parameter(torch.randn(TABLE_NODES, 2)),
        torch.randn(TABLE_NODES, 2, requires_grad=True),
    ],
)
def test_a_tensor_is_its_own_table(value: Tensor) -> None:
    assert as_table(value, TABLE_NODES) is value


def test_an_array_is_shared() -> None:
    array = np.zeros((TABLE_NODES, 2))
    table = as_table(array, TABLE_NODES)
    assert isinstance(table, Tensor)
    array[3] = 7
    assert table[3].tolist() == [7, 7]


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


def test_minibatches_share_the_tables_and_nothing_is_copied() -> None:
    table = torch.randn(TABLE_NODES, 2)
    nodes = [torch.tensor([4, 1]), torch.tensor([], dtype=torch.int64), torch.tensor([1, 1, 5])]
    given = [only_nodes(node) for node in nodes]
    ready = InPlaceFetcher({GROUP: {"x": table}}).fetch(FetchGroup(given)).minibatches
    for one, before in zip(ready, given, strict=True):
        assert (
            one.placement is Placement.IN_PLACE
            and one.row is one.node is before.node
            and one.block["x"] is table
        )
        assert torch.equal(one.attribute("x"), table[before.node])
        assert one.nbytes == before.nbytes


def test_files_are_told_from_memory(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2000, 3)))
    for mode in ("r+", "c"):
        mapped = torch.from_numpy(np.load(tmp_path / "x.npy", mmap_mode=mode))
        assert is_mapped(mapped)
        assert is_mapped(mapped[1000:]) and not is_mapped(mapped.clone())
    assert is_mapped(torch.from_file(str(tmp_path / "x.npy"), size=100))
    assert not is_mapped(torch.randn(10))
    assert not is_mapped(torch.randn(1 << 20))
    assert not is_mapped(torch.empty(0))
    assert not is_mapped(torch.randn(5000).share_memory_())
    assert are_mapped([torch.randn(10), mapped, torch.empty(0), mapped[1000:]]) == [False, True, False, True]


OTHER = Group(RowKind.NODE, "other")
ROWS = 9
units = st.lists(st.tuples(st.sets(st.integers(0, ROWS - 1)), st.sets(st.integers(0, ROWS - 1))), max_size=6)


@given(units, st.sampled_from([0, 20, 1 << 20]))
def test_next_uses(string: list[tuple[set[int], set[int]]], held: int) -> None:
    """Whatever part of the list lies in a file."""
    accesses = AccessString({NODES: ROWS, OTHER: ROWS}, held, first=5)
    for number, both in enumerate(string):
        rows = [torch.tensor(sorted(one), dtype=torch.int64) for one in both]
        accesses.append((0, number, 0), dict(zip((NODES, OTHER), rows, strict=True)))
    assert accesses.end == 5 + len(string)
    first = accesses.finish()

    def use(row: int, group: int, after: int) -> int:
        later = (5 + at for at in range(after + 1, len(string)) if row in string[at][group])
        return next(later, NEVER)

    assert first[NODES].tolist() == [use(row, 0, -1) for row in range(ROWS)]
    for number, both in enumerate(string):
        for at, group in enumerate((NODES, OTHER)):
            expected = [use(row, at, number) for row in sorted(both[at])]
            assert (
                accesses.following((0, number, 0), group, torch.tensor(sorted(both[at]))).tolist() == expected
            )
    assert accesses.accesses[NODES] == sum(len(one) for one, _ in string)
    assert accesses.number((1, 0, 0)) is None


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


def test_an_epoch_is_longer_than_what_was_sampled() -> None:
    """Rows that one minibatch in a thousand needs are seen in the sample by their likes."""
    draws = np.random.default_rng(0)
    probability = 0.5 / np.arange(1, 30_001) ** 0.6

    def minibatch() -> torch.Tensor:
        return torch.from_numpy(np.flatnonzero(draws.random(len(probability)) < probability))

    found = Frequencies.of([minibatch() for _ in range(64)], len(probability))
    expected = (1 - (1 - probability) ** 1000).sum()
    assert found.distinct(1000) == pytest.approx(expected, rel=0.13)


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
    """Returns how many rows are read before each unit, in plain Python."""
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


@given(strings, st.integers(1, 6))
def test_nothing_is_read_twice_where_all_fits(string: list[set[int]], period: int) -> None:
    found = simulate(vectors(string), SWEPT, SWEPT, period, 1)
    assert found is not None and sum(found) == len(set().union(*string))


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


@given(
    st.lists(strings, min_size=1, max_size=3), st.integers(0, SWEPT + 1), st.integers(1, 6), st.integers(0, 2)
)
def test_slots_hold_the_rows_of_their_units(
    epochs: list[list[set[int]]], capacity: int, period: int, in_use: int
) -> None:
    """Over several epochs, while the units before may be in use, and where some do not fit."""
    table, sweep, number = torch.arange(SWEPT), Sweep(SWEPT, capacity), 0
    memory, using = torch.full((capacity,), -1), list[tuple[Tensor, Tensor]]()
    for string in epochs:
        first, following = first_uses(vectors(string), SWEPT, number)
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
