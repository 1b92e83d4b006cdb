"""A cache of rows whose next uses are known."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyg_batchgnn import ops
from pyg_batchgnn.fetch.frequencies import simulate

ROWS = 12
strings = st.lists(st.sets(st.integers(0, ROWS - 1), max_size=ROWS), min_size=1, max_size=7)


def by_hand(string: list[set[int]], capacity: int) -> list[int]:
    """Returns the rows that each unit reads, by Belady's rule in plain Python."""
    cached: set[int] = set()
    reads = []
    for number, needed in enumerate(string):
        reads.append(len(needed - cached))

        def use(row: int, after: int = number) -> int:
            later = (at for at in range(after + 1, len(string)) if row in string[at])
            return next(later, len(string))

        soonest = sorted(cached | needed, key=lambda row: (use(row), row))
        cached = {row for row in soonest[:capacity] if use(row) < len(string)}
    return reads


def fewest(string: list[set[int]], capacity: int) -> int:
    """Returns the fewest rows that any choice of what stays reads, by trying all."""
    costs = {frozenset[int](): 0}
    for needed in string:
        after: dict[frozenset[int], int] = {}
        for cached, cost in costs.items():
            paid = cost + len(needed - cached)
            here = cached | needed
            for kept in itertools.combinations(sorted(here), min(capacity, len(here))):
                after[frozenset(kept)] = min(paid, after.get(frozenset(kept), paid))
        costs = after
    return min(costs.values())


def vectors(string: list[set[int]]) -> list[torch.Tensor]:
    return [torch.tensor(sorted(needed), dtype=torch.int64) for needed in string]


@given(strings, st.integers(0, ROWS + 1))
def test_rows_read_are_those_of_belady(string: list[set[int]], capacity: int) -> None:
    # Rows that are never needed again may stay, which spares no read within the string.
    assert simulate(vectors(string), ROWS, capacity) == by_hand(string, capacity)


@given(st.lists(st.sets(st.integers(0, 5)), min_size=1, max_size=4), st.integers(0, 6))
def test_no_other_choice_reads_fewer(string: list[set[int]], capacity: int) -> None:
    assert sum(simulate(vectors(string), 6, capacity)) == fewest(string, capacity)


@given(strings, st.integers(0, ROWS + 1), st.randoms())
def test_slots_hold_the_rows_of_their_nodes(string: list[set[int]], capacity: int, draws) -> None:  # type: ignore[no-untyped-def]
    table = torch.arange(ROWS * 3).view(ROWS, 3)
    cache, rows = ops.CachedNodes.none(), torch.zeros(capacity, 3, dtype=torch.int64)
    for needed in vectors(string):
        following = torch.tensor([draws.choice([3, 5, ops.NEVER]) for _ in needed], dtype=torch.int32)
        before = dict(zip(cache.node.tolist(), cache.slot.tolist(), strict=True))
        assert cache.find(needed).tolist() == [before.get(node, ops.NO_SLOT) for node in needed.tolist()]
        cache, taken, slot = cache.keep(needed, following, capacity)
        ops.move_rows(table[needed].contiguous(), taken, rows, slot.long())
        assert cache.node.numel() == min(capacity, len(before.keys() | set(needed.tolist())))
        assert cache.node.tolist() == sorted(set(cache.node.tolist()))
        assert len(set(cache.slot.tolist())) == cache.slot.numel()
        assert torch.equal(rows[cache.slot.long()], table[cache.node])
        stayed = dict(zip(cache.node.tolist(), cache.slot.tolist(), strict=True))
        assert all(stayed[node] == at for node, at in before.items() if node in stayed)


def test_wrong_arguments_are_named() -> None:
    cache, nodes = ops.CachedNodes.none(), torch.arange(3)
    with pytest.raises(ValueError, match="3 nodes came with 2 next uses"):
        cache.keep(nodes, torch.zeros(2, dtype=torch.int32), 4)
    with pytest.raises(ValueError, match="rows, not -1"):
        cache.keep(nodes, torch.zeros(3, dtype=torch.int32), -1)
    with pytest.raises(TypeError, match="node"):
        cache.find(nodes.int())
    with pytest.raises(ValueError, match="cannot be put"):
        ops.move_rows(torch.zeros(3, 2), nodes, torch.zeros(3, 1), nodes)
    with pytest.raises(ValueError, match="contiguous"):
        ops.move_rows(torch.zeros(3, 4)[:, :2], nodes, torch.zeros(3, 2), nodes)
