"""Rows in memory whose next uses are known."""

from __future__ import annotations

import gc
import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyg_batchgnn import ops
from pyg_batchgnn.fetch.frequencies import simulate

ROWS = 12
strings = st.lists(st.sets(st.integers(0, ROWS - 1), max_size=ROWS), min_size=1, max_size=7)


def by_hand(string: list[set[int]], capacity: int, in_use: int) -> list[int]:
    """Returns the rows that each unit reads, by Belady's rule in plain Python."""
    here: set[int] = set()
    reads = []
    for number, needed in enumerate(string):
        reads.append(len(needed - here))

        def use(row: int, after: int = number) -> int:
            later = (at for at in range(after + 1, len(string)) if row in string[at])
            return next(later, len(string))

        kept = {row for before in string[max(0, number - in_use) : number] for row in before} & here
        may_leave = sorted(here - kept - needed, key=lambda row: (use(row), row))
        room = capacity - len(here | needed)
        if -room > len(may_leave):
            continue  # the unit's rows lie elsewhere
        here = (here | needed) - set(may_leave[len(may_leave) + min(0, room) :])
    return reads


def fewest(string: list[set[int]], capacity: int) -> int:
    """Returns the fewest rows that any choice of what leaves reads, by trying all.

    No unit but the one that is prepared is in use.
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


def vectors(string: list[set[int]]) -> list[torch.Tensor]:
    return [torch.tensor(sorted(needed), dtype=torch.int64) for needed in string]


@given(strings, st.integers(0, ROWS + 1), st.integers(0, 2))
def test_rows_read_are_those_of_belady(string: list[set[int]], capacity: int, in_use: int) -> None:
    read, _ = simulate(vectors(string), ROWS, capacity, in_use)
    assert read == by_hand(string, capacity, in_use)


@given(st.lists(st.sets(st.integers(0, 5)), min_size=1, max_size=4), st.integers(0, 6))
def test_no_other_choice_reads_fewer(string: list[set[int]], capacity: int) -> None:
    read, fits = simulate(vectors(string), 6, capacity, 0)
    assert fits == (max(map(len, string)) <= capacity)
    if fits:
        assert sum(read) == fewest(string, capacity)


@given(strings, st.integers(0, ROWS + 1), st.randoms())
def test_slots_hold_the_rows_of_their_nodes(string: list[set[int]], capacity: int, draws) -> None:  # type: ignore[no-untyped-def]
    table = torch.arange(ROWS * 3).view(ROWS, 3)
    residents, rows = ops.Residents.none(), torch.zeros(capacity, 3, dtype=torch.int64)
    for number, needed in enumerate(vectors(string)):
        following = torch.tensor([draws.choice([3, 5, ops.NEVER]) for _ in needed], dtype=torch.int32)
        before = dict(zip(residents.node.tolist(), residents.slot.tolist(), strict=True))
        admitted = residents.admit(needed, following, number, number - 1, capacity)
        residents, slot = admitted.residents, admitted.slot.long()
        missing = [at for at, node in enumerate(needed.tolist()) if node not in before]
        assert admitted.missing.tolist() == missing
        after = dict(zip(residents.node.tolist(), residents.slot.tolist(), strict=True))
        assert residents.node.tolist() == sorted(after)
        assert sorted(after.values()) == list(range(len(after)))
        assert all(after[node] == at for node, at in before.items() if node in after)
        if not admitted.fits:
            assert before == after
            assert slot.tolist() == [before.get(node, ops.NO_SLOT) for node in needed.tolist()]
            continue
        ops.move_rows(table[needed].contiguous(), admitted.missing, rows, slot[admitted.missing])
        assert torch.equal(rows[slot], table[needed])
        assert torch.equal(rows[residents.slot.long()], table[residents.node])
        assert len(after) == min(capacity, len(before.keys() | set(needed.tolist())))


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


def test_wrong_arguments_are_named() -> None:
    none, nodes = ops.Residents.none(), torch.arange(3)
    with pytest.raises(ValueError, match="3 nodes came with 2 next uses"):
        none.admit(nodes, torch.zeros(2, dtype=torch.int32), 0, 0, 4)
    with pytest.raises(ValueError, match="rows, not -1"):
        none.admit(nodes, torch.zeros(3, dtype=torch.int32), 0, 0, -1)
    with pytest.raises(TypeError, match="node"):
        none.admit(nodes.int(), torch.zeros(3, dtype=torch.int32), 0, 0, 4)
    with pytest.raises(ValueError, match="cannot be put"):
        ops.move_rows(torch.zeros(3, 2), nodes, torch.zeros(3, 1), nodes)
    with pytest.raises(ValueError, match="contiguous"):
        ops.move_rows(torch.zeros(3, 4)[:, :2], nodes, torch.zeros(3, 2), nodes)
    with pytest.raises(ValueError, match="rows from 3 on"):
        ops.lease_rows(torch.zeros(3, 2), 3, torch.zeros(1, dtype=torch.int32))
