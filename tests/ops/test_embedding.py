"""The operators of embedding tables against plain Python. Nothing wrong reaches a kernel."""

from __future__ import annotations

from itertools import islice

import pytest
import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops import RowChanges, RowGradients, RowRule, RowStep, RowTable
from tests.support.reference_sampler import fold, words


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
    """The changes of rows that occur in any order, sources of one row in order."""
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


def updated(table: RowTable, changes: RowChanges, given: RowGradients, step: RowStep) -> list[Tensor]:
    """Returns rows and state after a step by the formulas, in float64."""
    weight, *state = [one.double().clone() for one in (table.weight, *table.state)]
    far = torch.cat(list(given.far)).double()
    rank = torch.repeat_interleave(torch.arange(3), torch.tensor(given.counts))
    for number, row in enumerate(changes.row.tolist()):
        total = None
        for source in changes.source[int(changes.ptr[number]) : int(changes.ptr[number + 1])].tolist():
            share = given.share[given.rank] if source >= 0 else given.share[int(rank[~source])]
            if share:
                one = given.near[source].double() if source >= 0 else far[~source]
                total = share * one if total is None else total + share * one
        if total is None or (table.frozen is not None and table.frozen[row]):
            continue
        if step.rule is RowRule.SGD:
            weight[row] -= step.rate * total
        elif step.rule is RowRule.ADAGRAD:
            state[0][row] += total**2
            weight[row] -= step.rate * total / (state[0][row].sqrt() + step.eps)
        else:
            state[0][row] += step.first * (total - state[0][row])
            state[1][row] += step.second * (total**2 - state[1][row])
            weight[row] -= step.rate * state[0][row] / (state[1][row].sqrt() + step.eps)
    return [weight, *state]


@pytest.mark.parametrize("rule", list(RowRule))
@pytest.mark.parametrize("columns", [1, 16, 37])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_are_updated_by_the_formulas(dtype: torch.dtype, columns: int, rule: RowRule) -> None:
    step = RowStep(rule, 0.1, 1e-8, 0.1, 0.001)
    tolerance = 2e-6 if dtype == torch.float32 else 1e-13
    for shares in ([0.25, 0.5, 0.25], [0.0, 1.0, 0.0], [0.5, 0.0, 0.5]):
        results = []
        for threads in (1, 2, 7):
            table, changes, given = case(dtype, columns, rule)
            given = RowGradients(given.near, given.far, given.counts, shares, 1)
            frozen = torch.arange(40) % 5 == 0 if threads == 7 else None
            table = RowTable(table.weight, table.state, frozen)
            wanted = updated(table, changes, given, step)
            with ops.thread_limit(threads):
                ops.update_rows(table, changes, given, step)
            for found, each in zip((table.weight, *table.state), wanted, strict=True):
                assert torch.allclose(found.double(), each, rtol=tolerance, atol=tolerance)
            results.append(table)
        assert torch.equal(results[0].weight, results[1].weight)


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
