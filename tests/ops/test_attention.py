"""Graph attention: the formula, gradients, dropout, bits on any number of threads."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyg_batchgnn import ops
from tests.support.accuracy import distance
from tests.support.quantized_tables import drawn_table
from tests.support.reference_attention import (
    Case,
    assert_close_gradients,
    gradients,
    make_case,
    reference,
    slot_edges,
)
from tests.support.tiers import each, every_level, examples

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def assert_equals_reference(case: Case, tolerance: float) -> None:
    found, (wanted, weights) = case.run(), reference(case)
    totals = torch.zeros_like(found.total, dtype=torch.float64)
    into = torch.tensor([target for _, target, *_ in slot_edges(case)], dtype=torch.int64)
    totals = totals.index_add(0, into, weights)
    assert distance(found.out, wanted) < tolerance
    assert distance(found.total, totals) < tolerance
    assert (
        distance(ops.attention_weights(found.coefficient, case.indptr, loops=case.loops), weights) < tolerance
    )
    mine, theirs = gradients(found.out, case.leaves), gradients(wanted, case.leaves)
    assert_close_gradients(mine, theirs, tolerance)


@every_level
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("heads", [1, 2, 3, 4, 5, 7, 8])
@pytest.mark.parametrize("columns", [1, 15, 16, 100])
def test_equals_the_formula(columns: int, heads: int, dtype: torch.dtype) -> None:
    loops = 6 if heads % 2 else None
    assert_equals_reference(make_case(9, 20, 40, columns, heads, loops, dtype=dtype), TOLERANCE[dtype])


@every_level
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("heads", [1, 2, 7])
@pytest.mark.parametrize("columns", [1, 16, 100])
@pytest.mark.parametrize("edge_columns", [0, 1, 16, 19])
def test_weights_by_target_rows_of_edges_and_columns_by_head(
    columns: int, edge_columns: int, heads: int, dtype: torch.dtype
) -> None:
    for by_target, by_head in itertools.product((False, True), repeat=2):
        options = {"by_target": by_target, "edge_columns": edge_columns, "by_head": by_head}
        loops = 6 if heads % 2 else None
        case = make_case(9, 20, 40, columns, heads, loops, dtype=dtype, **options)
        # The gradients of logits of a target, and sums of them, nearly cancel.
        assert_equals_reference(case, 10 * TOLERANCE[dtype])


@given(
    targets=st.integers(0, 8),
    more=st.integers(0, 9),
    edges=st.integers(0, 60),
    columns=st.sampled_from([1, 3, 17, 70]),
    heads=st.integers(1, 8),
    loops=st.sampled_from(["none", "all", "some"]),
    flags=st.tuples(*[st.booleans()] * 5),
    edge_columns=st.sampled_from([0, 1, 18]),
    seed=st.integers(0, 1000),
)
@examples(60)
def test_equals_the_formula_on_any_graph(
    targets: int,
    more: int,
    edges: int,
    columns: int,
    heads: int,
    loops: str,
    flags: tuple[bool, ...],
    edge_columns: int,
    seed: int,
) -> None:
    hub, rows, edge_logits, by_target, by_head = flags
    edges = edges if targets else 0
    count = {"none": None, "all": targets, "some": targets // 2}[loops]
    case = make_case(
        *(targets, max(targets + more, 1), edges, columns, heads, count),
        seed=seed,
        hub=hub,
        rows=rows,
        edge_logits=edge_logits,
        by_target=by_target,
        edge_columns=edge_columns,
        by_head=by_head,
    )
    assert_equals_reference(case, 1e-10)


def test_long_lists_and_several_blocks() -> None:
    assert_equals_reference(make_case(300, 500, 3000, 20, 4, 300, dtype=torch.float32, hub=True), 1e-5)


@every_level
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_rows_are_computed_in_float32(dtype: torch.dtype) -> None:
    case = make_case(9, 20, 60, 37, 4, 9, dtype=dtype)
    found, (wanted, _) = case.run(out_dtype=torch.float32), reference(case)
    assert found.out.dtype is torch.float32 and distance(found.out, wanted) < 1e-5
    for one, two in zip(gradients(found.out, case.leaves), gradients(wanted, case.leaves), strict=True):
        assert distance(one, two) < (2**-8 if one.dtype is torch.bfloat16 else 1e-5)


@every_level
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_narrow_results_are_float32_rounded(dtype: torch.dtype) -> None:
    case = make_case(9, 20, 60, 37, 4, 9, dtype=dtype)
    found, wide = case.run(out_dtype=torch.bfloat16), case.run(out_dtype=torch.float32)
    assert torch.equal(found.out, wide.out.bfloat16())
    upstream = torch.randn_like(wide.out).bfloat16()
    one = torch.autograd.grad(found.out, case.leaves, upstream)
    two = torch.autograd.grad(wide.out, case.leaves, upstream.float())
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("by_target", [False, True])
@pytest.mark.parametrize("by_head", [False, True])
def test_derivatives(by_target: bool, by_head: bool) -> None:
    case = make_case(4, 6, 14, 3, 2, 3, seed=3, by_target=by_target, edge_columns=2, by_head=by_head)
    names = list(case.weights)

    def run(x: torch.Tensor, *weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
        named = dict(zip(names, weights, strict=True))
        made = Case(x, case.indptr, case.indices, named, case.loops, by_head=by_head)
        out, coefficient, total = made.run(drop=0.3, key=5)
        kept = ops.attention_weights(coefficient, case.indptr, loops=case.loops, drop=0.3, key=5)
        return out, kept, total

    assert torch.autograd.gradcheck(run, (case.x, *case.weights.values()))


def test_dropout_is_keyed_by_node_place_and_head() -> None:
    case = make_case(12, 20, 90, 5, 3, 12, dtype=torch.float64)
    node = torch.randperm(1000)[:12]
    options: dict[str, Any] = {"drop": 0.4, "key": 77, "node": node}
    found = case.run(**options)
    widest = max(place for _, _, place, _, _ in slot_edges(case)) + 1
    # The standalone dropout says what (key, node, column) keeps.
    kept = ops.activate(torch.ones(12, widest * 3, dtype=torch.float64), drop=0.4, key=77, node=node)
    keep = torch.stack([kept[i].view(-1, 3)[place] for _, i, place, _, _ in slot_edges(case)])
    wanted, weights = reference(case, keep=keep)
    assert distance(found.out, wanted) < 1e-12
    alpha = ops.attention_weights(found.coefficient, case.indptr, loops=12, **options)
    assert distance(alpha, weights) < 1e-12
    totals = torch.zeros_like(found.total).index_add(
        0, torch.tensor([i for _, i, *_ in slot_edges(case)]), alpha
    )
    assert distance(found.total, totals) < 1e-12
    assert_close_gradients(gradients(found.out, case.leaves), gradients(wanted, case.leaves), 1e-10)
    assert ops.attention_key(1) not in (1, ops.attention_key(2))


def test_not_a_number_is_not_hidden() -> None:
    case = make_case(5, 8, 30, 4, 2, 5, dtype=torch.float32)
    with torch.no_grad():
        case.x[0] = float("nan")
        assert case.run().out[0].isnan().all()
        case.x[0] = float("inf")
        assert not case.run().out[0].isfinite().any()


@each
@pytest.mark.parametrize("by_target", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_opcheck(grad: bool, by_target: bool) -> None:
    case = make_case(6, 9, 30, 5, 2, 4, dtype=torch.float32, by_target=by_target, edge_columns=3)
    by_source = list(ops.transpose(case.indptr, case.indices, 9))
    w = case.weights if grad else {name: weight.detach() for name, weight in case.weights.items()}
    x = case.x if grad else case.x.detach()
    terms = (*w.values(), None, None, None, by_source if grad else [])
    arguments = (x, None, None, case.indptr, case.indices, *terms)
    numbers = (False, 0, 6, 4, 0.2, 0.3, 7)
    torch.library.opcheck(torch.ops.pyg_batchgnn.attention, (*arguments, *numbers, torch.float32, 2))
    table = drawn_table(*x.shape, seed=0)
    coded = (table.codes, table.decoding, *arguments[2:-1], [], *numbers, torch.float32, 2)
    torch.library.opcheck(torch.ops.pyg_batchgnn.attention, coded)
    if grad:
        return
    out, coefficient, total = (one.detach() for one in case.run(drop=0.3, key=7))
    given = (w["source_weight"], w["target_weight"], w["edge_rows"], None, None)
    graph = (None, case.indptr, case.indices, *given, None, by_source)
    operands = (out, None, total, coefficient, x, None, *graph, *numbers, True, True, 2)
    torch.library.opcheck(torch.ops.pyg_batchgnn.attention_grads, operands)
    of_codes = (table.codes, table.decoding, *graph[:-1], [])
    coded = (out, None, total, coefficient, *of_codes, *numbers, True, True, 2)
    torch.library.opcheck(torch.ops.pyg_batchgnn.attention_grads, coded)
    torch.library.opcheck(torch.ops.pyg_batchgnn.attention_keep, (case.indptr, None, 6, 4, 2, 0.3, 7))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"loops": 7}, ValueError, ["loops", "[0, 6]", "7"]),
        ({"drop": 1.0}, ValueError, ["1.0"]),
        ({"by_source": ()}, ValueError, ["ops.transpose"]),
        ({"row": torch.arange(9)}, ValueError, ["gather"]),
        ({"source_weight": torch.zeros(2, 4)}, ValueError, ["source_weight", "[2, 5]", "[2, 4]"]),
        ({"target_logits": torch.zeros(6, 2).double()}, TypeError, ["target_logits", "float64"]),
        ({"edge_logits": torch.zeros(30, 2)}, ValueError, ["edge_logits", "[34, 2]"]),
        ({"edge_rows": torch.zeros(30, 2)}, ValueError, ["source_weight", "[2, 7]"]),
        ({"source_weight": torch.zeros(5, 2, 5)}, ValueError, ["source_weight", "[6, 2, 5]", "[5, 2, 5]"]),
        ({"source_weight": torch.zeros(5)}, ValueError, ["source_weight", "[5]"]),
        ({"by_head": True}, ValueError, ["by_head", "2 heads", "5 columns"]),
        ({"x": torch.zeros(9, 5).long()}, TypeError, ["int64"]),
        ({"x": torch.zeros(5, 9).t()}, ValueError, ["strides"]),
        ({"out_dtype": torch.float64}, TypeError, ["float64"]),
        ({"out_dtype": torch.float16}, TypeError, ["float16"]),
        ({"indices": torch.zeros(30)}, TypeError, ["indices", "int64"]),
    ],
)
def test_refused(change: dict[str, Any], error: type[Exception], words: list[str]) -> None:
    case = make_case(6, 9, 30, 5, 2, 4, dtype=torch.float32, edge_logits=False)
    arguments: dict[str, Any] = {
        **{"x": case.x, "indptr": case.indptr, "indices": case.indices, **case.weights, "loops": 4},
        **{"by_source": ops.transpose(case.indptr, case.indices, 9), **change},
    }
    first = [arguments.pop(name) for name in ("x", "indptr", "indices", "source_weight")]
    call: Callable[..., Any] = ops.attention
    with pytest.raises(error) as caught:
        call(*first, **arguments)
    assert all(word in str(caught.value) for word in words), caught.value
