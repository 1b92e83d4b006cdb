"""The rows that an epoch is going to need, and how often rows are needed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyg_batchgnn.fetch import AccessString, Frequencies
from pyg_batchgnn.fetch.sweep import simulate
from pyg_batchgnn.ops import NEVER
from pyg_batchgnn.types import NODES, Group, RowKind

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
    assert found.reads(100, 10, int(found.distinct(10)), period=2, in_use=1) is None
    read = []
    for period in (1, 2, 10):
        forecast = found.reads(100, 10, len(probability), period, in_use=1)
        assert forecast is not None
        read.append(forecast.total)
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
