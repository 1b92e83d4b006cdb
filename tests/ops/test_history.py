"""Operators of embeddings, historical and learned, against plain Python."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops import (
    NO_LINE,
    HaloPeers,
    InEdges,
    LineTable,
    RowChanges,
    RowGradients,
    RowRule,
    RowStep,
    RowTable,
    choose_pushed,
    halo_layer,
    put_lines,
    thread_limit,
)
from tests.support.chi_square import assert_uniform, p_of_cells
from tests.support.reference_sampler import fold, words
from tests.support.tiers import examples

THREADS = (1, 3)


class ReferenceCache:
    def __init__(self, lines: int) -> None:
        self.lines = lines
        self.rows: OrderedDict[int, tuple[int, float]] = OrderedDict()

    def store(self, node: int, step: int, row: float) -> None:
        if node in self.rows:
            self.rows.pop(node)
        elif self.lines and len(self.rows) == self.lines:
            self.rows.popitem(last=False)
        if self.lines:
            self.rows[node] = (step, row)

    def find(self, node: int, since: int) -> float | None:
        step, row = self.rows.get(node, (-1, 0.0))
        return row if step >= since else None


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, list[list[int]]]:
    nodes = draw(st.sampled_from([3, 12, 1 << 40]))
    node = st.one_of(st.integers(0, nodes - 1), st.integers(0, 5))
    return draw(st.integers(0, 9)), draw(st.lists(st.lists(node, max_size=25), max_size=12))


@examples(150, deadline=None)
@given(histories(), st.integers(0, 4))
def test_lines_are_those_of_a_dict(case: tuple[int, list[list[int]]], life_span: int) -> None:
    lines, steps = case
    table, rows, reference = LineTable(lines), torch.full((lines, 1), -1.0), ReferenceCache(lines)
    stored = 0.0
    for step, nodes in enumerate(steps):
        given_rows = torch.arange(len(nodes)).view(-1, 1) + stored
        stored += len(nodes)
        line = table.store(torch.tensor(nodes, dtype=torch.int64), torch.full((len(nodes),), step))
        assert len(set(line[line >= 0].tolist())) == int((line >= 0).sum())
        put_lines(rows, line, given_rows)
        for node, row in zip(nodes, given_rows.flatten().tolist(), strict=True):
            reference.store(node, step, row)
        asked = sorted({0, 7, *nodes})
        for threads in THREADS:
            with thread_limit(threads):
                found = table.search(torch.tensor(asked), max(0, step - life_span))
            wanted = [reference.find(node, max(0, step - life_span)) for node in asked]
            assert [None if at < 0 else float(rows[at, 0]) for at in found.tolist()] == wanted
    in_use = table.in_use()
    assert len(table) == len(reference.rows) and table.node_of(in_use).tolist() == list(reference.rows)
    assert table.step_of(in_use).tolist() == [step for step, _ in reference.rows.values()]


def reference_layer(
    edges: InEdges, targets: int, own_nodes: int, own_rows: int, cached: Sequence[int]
) -> tuple[list[int], list[int], list[int]]:
    indptr, source, place = [0], [], []
    for target in range(targets):
        for at in range(int(edges.indptr[target]), int(edges.indptr[target + 1])):
            node = int(edges.indices[at])
            row = node if node < own_nodes else cached[node - own_nodes]
            if row >= 0:
                source.append(row if node < own_nodes else own_rows + row)
                place.append(at)
        indptr.append(len(source))
    return indptr, source, place


@examples(80, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 12), st.integers(1, 8), st.integers(0, 9))
def test_a_layer_has_the_edges_whose_source_has_a_row(seed: int, targets: int, own: int, halo: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    own_rows = int(torch.randint(1, own + 1, (), generator=draw))
    degrees = torch.randint(0, 4, (targets + 2,), generator=draw)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
    kinds = torch.cat([torch.arange(own_rows), own + torch.arange(halo)])
    indices = kinds[torch.randint(len(kinds), (int(indptr[-1]),), generator=draw)].to(torch.int32)
    is_found = torch.rand(halo, generator=draw) < 0.6
    cached = torch.where(is_found, is_found.cumsum(0) - 1, -1).to(torch.int32)
    edges = InEdges(indptr, indices)
    for threads in THREADS:
        with thread_limit(threads):
            found = halo_layer(edges, targets, own, own_rows, cached)
        assert found.edge_ids is not None
        assert (found.indptr.tolist(), found.indices.tolist(), found.edge_ids.tolist()) == reference_layer(
            edges, targets, own, own_rows, cached.tolist()
        )


@pytest.mark.parametrize("source", [-1, 2, 5])
def test_a_source_that_is_none_of_a_layer(source: int) -> None:
    edges = InEdges(torch.tensor([0, 1]), torch.tensor([source], dtype=torch.int32))
    with pytest.raises(IndexError, match="neither among 2 own rows nor among 1 halo nodes"):
        halo_layer(edges, 1, 4, 2, torch.zeros(1, dtype=torch.int32))


def peers_of(lists: Sequence[dict[int, int]], ranks: int) -> HaloPeers:
    sizes = torch.tensor([0, *map(len, lists)])
    peers = [peer for one in lists for peer in sorted(one)]
    degrees = [one[peer] for one in lists for peer in sorted(one)]
    as_ids = [torch.tensor(values, dtype=torch.int32) for values in (peers, degrees)]
    return HaloPeers(sizes.cumsum(0), *as_ids, ranks)


@examples(60, deadline=None)
@given(
    st.lists(st.dictionaries(st.integers(0, 3), st.integers(1, 5)), min_size=1, max_size=40),
    st.integers(0, 2**32 - 1),
    st.one_of(st.none(), st.integers(0, 8)),
)
def test_what_is_pushed_is_in_the_halo(lists: list[dict[int, int]], seed: int, most: int | None) -> None:
    draw = torch.Generator().manual_seed(seed)
    row = torch.randperm(len(lists), generator=draw)[: len(lists) - 1]
    row[::5] = -1
    name = row * 7 + 3
    found = []
    for threads in THREADS:
        with thread_limit(threads):
            found.append(choose_pushed(peers_of(lists, 4), row, name, most, 5))
    assert torch.equal(found[0].place, found[1].place) and found[0].counts == found[1].counts
    for peer, places in enumerate(found[0].place.split(found[0].counts)):
        wanted = [at for at, node in enumerate(row.tolist()) if node >= 0 and peer in lists[node]]
        assert found[0].candidates[peer] == len(wanted)
        assert places.tolist() == sorted(set(places.tolist())) and set(places.tolist()) <= set(wanted)
        assert len(places) == (len(wanted) if most is None else min(most, len(wanted)))


def test_the_draw_of_a_node_depends_on_its_name_alone() -> None:
    halo = peers_of([{0: 1, 1: 2}] * 50, 2)
    row, name = torch.arange(50), torch.arange(50) * 11
    order = torch.randperm(50, generator=torch.Generator().manual_seed(2))
    for key in (1, -9):
        here = choose_pushed(halo, row, name, 9, key)
        there = choose_pushed(halo, row[order], name[order], 9, key)
        for one, other in zip(here.place.split(here.counts), there.place.split(there.counts), strict=True):
            assert set(one.tolist()) == set(order[other].tolist())


def test_nodes_are_drawn_in_proportion_to_degree() -> None:
    """Two of four nodes: the probability of each pair follows from successive draws."""
    degree = (1, 2, 3, 6)
    halo = peers_of([{0: one} for one in degree], 1)
    row = torch.arange(4)
    total, times = sum(degree), 6000
    expected: dict[tuple[int, int], float] = {}
    for first in range(4):
        for second in set(range(4)) - {first}:
            pair = (min(first, second), max(first, second))
            chance = degree[first] / total * degree[second] / (total - degree[first])
            expected[pair] = expected.get(pair, 0.0) + chance
    seen = dict.fromkeys(expected, 0)
    for key in range(times):
        one, other = choose_pushed(halo, row, row + 10, 2, key).place.tolist()
        seen[one, other] += 1
    counts = np.array([seen[pair] for pair in expected], dtype=np.int64)
    assert_uniform(p_of_cells(counts, np.array(list(expected.values()))))


def test_rows_that_do_not_fit_are_refused() -> None:
    table, row = torch.zeros(2, 2), torch.zeros(1, 2)
    none = torch.tensor([NO_LINE], dtype=torch.int32)
    with pytest.raises(ValueError, match="do not fit lines"):
        put_lines(table, none, row.double())
    with pytest.raises(ValueError, match="lines came with"):
        put_lines(table, none.repeat(2), row)
    with pytest.raises(ValueError, match="from 0 to"):
        LineTable(-1)
    with pytest.raises(ValueError, match="steps"):
        LineTable(2).store(torch.zeros(1, dtype=torch.int64), torch.zeros(2, dtype=torch.int64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_initial_rows_are_those_of_the_definition(dtype: torch.dtype) -> None:
    node, key, bound = torch.tensor([0, 7, 2**40]), 12345, 0.25
    rows = torch.empty(3, 5, dtype=dtype)
    ops.fill_uniform(rows, node, key, bound)
    for number, own in zip(node.tolist(), rows, strict=True):
        drawn = islice(words(fold(key, number)), 5)
        wanted = [bound * ((word >> 11) * 2.0**-52 - 1) for word in drawn]
        assert torch.equal(own, torch.tensor(wanted, dtype=dtype))


def test_initial_rows_are_uniform_and_the_same_on_any_number_of_threads() -> None:
    node = torch.arange(4000)
    rows = [torch.empty(4000, 33) for _ in range(3)]
    for threads, own in zip((1, 2, 5), rows, strict=True):
        with ops.thread_limit(threads):
            ops.fill_uniform(own, node, 3, 2.0)
    assert torch.equal(rows[0], rows[1]) and torch.equal(rows[0], rows[2])
    assert float(rows[0].abs().max()) <= 2.0
    counts = torch.histc(rows[0], 16, -2, 2)
    mean = rows[0].numel() / 16
    assert float(((counts - mean) ** 2 / mean).sum()) < 45  # 15 degrees of freedom


@pytest.mark.parametrize("columns", [1, 7, 100])
def test_rows_of_two_tables_are_gathered(columns: int) -> None:
    near, far = torch.randn(50, columns), torch.randn(30, columns)
    source = torch.randint(-30, 50, (200,))
    wanted = torch.where((source >= 0)[:, None], near[source.clamp(min=0)], far[(~source).clamp(min=0)])
    for threads in (1, 3):
        with ops.thread_limit(threads):
            assert torch.equal(ops.gather_either(near, far, source), wanted)
    empty = ops.gather_either(near, far[:0], source[:0])
    assert empty.shape == (0, columns)


def changes_of(row: Tensor, source: Tensor, count: int) -> RowChanges:
    order = torch.argsort(row, stable=True)
    unique, counts = row.unique(return_counts=True)
    ptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    return RowChanges(unique, ptr, source[order])


def case(dtype: torch.dtype, columns: int, rule: RowRule) -> tuple[RowTable, RowChanges, RowGradients]:
    """Gradients of this rank, the second of three, for 40 rows of which some get several."""
    draw = torch.Generator().manual_seed(columns)
    weight = torch.randn(40, columns, generator=draw, dtype=dtype)
    state = tuple(torch.rand(40, columns, generator=draw, dtype=dtype) for _ in range(rule))
    near = torch.randn(25, columns, generator=draw, dtype=dtype)
    far = [torch.randn(count, columns, generator=draw, dtype=dtype) for count in (12, 0, 9)]
    row = torch.randint(40, (12 + 25 + 9,), generator=draw)
    source = torch.cat([~torch.arange(12), torch.arange(25), ~torch.arange(12, 21)])
    given = RowGradients(near, far, [12, 0, 9], [0.25, 0.5, 0.25], 1)
    return RowTable(weight, state), changes_of(row, source, 40), given


@pytest.mark.parametrize("rule", list(RowRule))
def test_updated_rows_are_the_same_on_any_number_of_threads(rule: RowRule) -> None:
    results = []
    for threads in (1, 2, 7):
        table, changes, given = case(torch.float32, 37, rule)
        with ops.thread_limit(threads):
            ops.update_rows(table, changes, given, RowStep(rule, 0.1, 1e-8, 0.1, 0.001))
        results.append(torch.stack([table.weight, *table.state]))
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_gradients_of_ranks_that_are_left_out_are_not_read() -> None:
    table, changes, given = case(torch.float32, 8, RowRule.SGD)
    before = table.weight.clone()
    absent = [given.far[0][:0], given.far[1], torch.full_like(given.far[2], torch.nan)]
    left = RowGradients(given.near, absent, given.counts, [0.0, 0.0, 0.0], 1)
    ops.update_rows(table, changes, left, RowStep(RowRule.SGD, 0.1))
    assert torch.equal(table.weight, before)


def test_gradients_of_other_rows_are_refused() -> None:
    table, changes, given = case(torch.float32, 8, RowRule.SGD)
    for near in (given.near[:, :4].contiguous(), given.near.half(), given.near.t().contiguous().t()):
        wrong = RowGradients(near, given.far, given.counts, given.share, 1)
        with pytest.raises(ValueError, match="gradients"):
            ops.update_rows(table, changes, wrong, RowStep(RowRule.SGD, 0.1))
