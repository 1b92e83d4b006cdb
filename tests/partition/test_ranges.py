"""Ranges of about equal work, against all ways to cut."""

from __future__ import annotations

from itertools import accumulate, combinations_with_replacement, pairwise

from hypothesis import given
from hypothesis import strategies as st

from pyg_batchgnn.partition.load import Load, balanced_offsets

Weights = list[tuple[int, int]]


def loads_of(weights: Weights) -> list[list[int]]:
    """Returns the running sums of nodes, edges and training nodes."""
    columns = [[1] * len(weights), *([row[k] for row in weights] for k in (0, 1))]
    return [[0, *accumulate(column)] for column in columns]


def fullest(offsets: list[int], sums: list[list[int]]) -> float:
    """The fullest range's load, in means."""
    ranks = len(offsets) - 1
    found = [
        (load[end] - load[begin]) * ranks / load[-1]
        for load in sums
        if load[-1]
        for begin, end in pairwise(offsets)
    ]
    return max(found, default=1.0)


def cut(weights: Weights, ranks: int) -> list[int]:
    loads: list[Load] = [load.__getitem__ for load in loads_of(weights)]
    return balanced_offsets(len(weights), loads, ranks)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 1)), max_size=9), st.integers(1, 4))
def test_no_other_ranges_are_better(weights: Weights, ranks: int) -> None:
    offsets, sums = cut(weights, ranks), loads_of(weights)
    assert len(offsets) == ranks + 1 and offsets[0] == 0 and offsets[-1] == len(weights)
    assert offsets == sorted(offsets)
    ways = combinations_with_replacement(range(len(weights) + 1), ranks - 1)
    best = min(fullest([0, *way, len(weights)], sums) for way in ways)
    assert fullest(offsets, sums) <= best * 1.002


def test_training_nodes_at_the_end_are_spread() -> None:
    """By nodes and edges alone one of four ranks would train them all."""
    weights = [(3, int(row >= 750)) for row in range(1000)]
    load = loads_of(weights)
    assert fullest([0, 250, 500, 750, 1000], load) == 4
    assert fullest(cut(weights, 4), load) < 2.6


def test_one_heavy_node_does_not_leave_one_range_with_nearly_all_others() -> None:
    weights = [(10_000 if row == 400 else 1, row % 2) for row in range(1000)]
    offsets = cut(weights, 4)
    sizes = [end - begin for begin, end in pairwise(offsets)]
    assert max(sizes) <= 600 and fullest(offsets, loads_of(weights)) < 3.7
