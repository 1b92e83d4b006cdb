"""A fetch group asks for each distinct node once; how often an epoch needs rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from pyg_batchgnn.data import NODES, Group, RowKind
from pyg_batchgnn.data import NODES as GROUP
from pyg_batchgnn.disk import are_mapped, is_mapped
from pyg_batchgnn.fetch import AccessString, BlockFetcher, FetchGroup, Frequencies, InPlaceFetcher, as_table
from pyg_batchgnn.fetch.sweep import simulate
from pyg_batchgnn.ops import NEVER
from pyg_batchgnn.sample import Placement, SampledMinibatch
from tests.support.bare_minibatches import only_nodes

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


# In place #########################################################################################

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


# Access ###########################################################################################

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
