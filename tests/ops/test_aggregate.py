"""Aggregation beside the obvious: gather, weigh, scatter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops import InEdges
from tests.support.aggregate_cases import assert_near, graph, obvious
from tests.support.quantized_tables import drawn_table
from tests.support.tiers import every_level, fixed

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


@every_level
@fixed(60)
@given(
    *(st.integers(0, 20), st.integers(0, 20), st.sampled_from([0, 1, 5, 60])),
    *(st.sampled_from([0, 1, 7, 16, 33, 100, 104, 256, 300]), st.sampled_from(list(ops.REDUCTIONS))),
    *(st.booleans(), st.sampled_from([torch.float32, torch.float64]), st.integers(0, 1000)),
)
def test_equals_the_obvious(
    targets: int,
    extra: int,
    degree: int,
    columns: int,
    reduce: str,
    weighted: bool,
    dtype: torch.dtype,
    seed: int,
) -> None:
    sources = targets + extra
    indptr, indices = graph(targets, sources, degree if sources else 0, seed)
    torch.manual_seed(seed)
    x = torch.randn(sources, columns, dtype=dtype).relu().requires_grad_()
    options: dict[str, Any] = {}
    if weighted and reduce in ops.SUMS:
        options = {
            "edge_weight": torch.rand(indices.numel(), dtype=dtype).requires_grad_(),
            "source_scale": torch.rand(sources, dtype=dtype),
            "target_scale": torch.rand(targets, dtype=dtype),
            "self_scale": torch.rand(targets if seed % 2 else 1, dtype=dtype).requires_grad_(),
        }
    found = ops.aggregate(x, indptr, indices, reduce=reduce, **options)
    exact = {name: value.double() for name, value in options.items()}
    wanted = obvious(x.double(), indptr, indices, reduce, **exact)
    assert_near(found, wanted, TOLERANCE[dtype])
    leaves = [x, *(value for value in options.values() if value.requires_grad)]
    grad = torch.randn_like(found)
    for one, two in zip(
        torch.autograd.grad(found, leaves, grad),
        torch.autograd.grad(wanted, leaves, grad.double()),
        strict=True,
    ):
        assert_near(one, two.double(), 5 * TOLERANCE[dtype])


@every_level
@pytest.mark.parametrize("columns", [5, 100, 256])
@pytest.mark.parametrize("degree", [2048, 2049, 9000])
def test_hubs(degree: int, columns: int) -> None:
    """A row of more edges than a piece holds, between rows of few and behind the last of them."""
    indptr = torch.tensor([0, 3, 3 + degree, 5 + degree, 5 + 2 * degree])
    indices = torch.randint(50, (int(indptr[-1]),)).int()
    x = torch.rand(50, columns)
    weight, own, scale = torch.rand(indices.numel()), torch.rand(4), torch.rand(4)
    options = {"edge_weight": weight, "self_scale": own, "target_scale": scale}
    found = ops.aggregate(x, indptr, indices, reduce="mean", **options)
    exact = {name: value.double() for name, value in options.items()}
    assert_near(found, obvious(x.double(), indptr, indices, "mean", **exact), 1e-5)
    narrow = ops.aggregate(x, indptr, indices, reduce="mean", out_dtype=torch.bfloat16, **options)
    assert torch.equal(narrow, found.bfloat16())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("columns", [1, 8, 15, 100])
def test_tables_are_converted_while_they_are_read(columns: int, dtype: torch.dtype) -> None:
    indptr, indices = graph(30, 40, 9)
    table = torch.randn(500, columns).to(dtype)
    row = torch.randint(500, (40,))
    for reduce in ops.REDUCTIONS:
        found = ops.aggregate(table, indptr, indices, row=row, reduce=reduce, out_dtype=torch.float32)
        assert torch.equal(found, ops.aggregate(table.float()[row], indptr, indices, reduce=reduce))
    wide = ops.aggregate(table, indptr, indices, row=row.int(), out_dtype=torch.float64)
    assert_near(wide, obvious(table.double()[row], indptr, indices), 1e-12)


def test_every_float16_is_read_exactly() -> None:
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    table = bits.view(torch.float16).view(-1, 1)
    indptr = torch.arange(table.size(0) + 1)
    found = ops.aggregate(table, indptr, indptr[:-1], out_dtype=torch.float32)
    assert torch.equal(found.nan_to_num(1e9), table.float().nan_to_num(1e9))


def test_columns_of_a_wider_table() -> None:
    indptr, indices = graph(30, 40, 9)
    table = torch.randn(40, 50)
    found = ops.aggregate(table[:, 3:20], indptr, indices)
    assert torch.equal(found, ops.aggregate(table[:, 3:20].contiguous(), indptr, indices))


def test_maxima_of_nan_and_infinity() -> None:
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([[nan, 1.0], [2.0, -inf], [3.0, -inf]])
    found = ops.aggregate(x, torch.tensor([0, 3, 5, 5]), torch.tensor([1, 0, 2, 1, 2]), reduce="max")
    assert torch.equal(found.nan_to_num(7.0, 8.0, -8.0), torch.tensor([[7.0, 1.0], [3.0, -8.0], [0.0, 0.0]]))


@pytest.mark.parametrize("reduce", ops.SUMS)
def test_own_rows_beside_have_one_gradient(reduce: str) -> None:
    indptr, indices = graph(30, 40, 9)
    x = torch.randn(40, 17, dtype=torch.float64, requires_grad=True)
    found, own = ops.aggregate_with_targets(x, indptr, indices, reduce=reduce)
    assert torch.equal(own, x[:30])
    a, b = torch.randn_like(found), torch.randn_like(own)
    wanted = obvious(x, indptr, indices, reduce)
    (one,) = torch.autograd.grad([found, own], [x], [a, b], retain_graph=True)
    (two,) = torch.autograd.grad([wanted, x[:30]], [x], [a, b])
    assert_near(one, two, 1e-12)
    (alone,) = torch.autograd.grad(own, [x], b)
    assert torch.equal(alone, torch.cat([b, torch.zeros(10, 17, dtype=torch.float64)]))


@every_level
@pytest.mark.parametrize("columns", [1, 7, 8, 9, 16, 31, 100, 105, 256, 300])
def test_rows_of_every_width(columns: int) -> None:
    indptr, indices = torch.arange(41) * 5, torch.randint(60, (200,)).int()
    weights = {"edge_weight": torch.rand(200), "self_scale": torch.rand(40)}
    exact = {name: one.double() for name, one in weights.items()}
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = torch.randn(60, columns).to(dtype)
        found = ops.aggregate(x, indptr, indices, out_dtype=torch.float32, **weights)
        assert_near(found, obvious(x.double(), indptr, indices, **exact), 1e-5)
        narrow = ops.aggregate(x, indptr, indices, out_dtype=torch.bfloat16, **weights)
        assert torch.equal(narrow, found.bfloat16()), dtype


@every_level
def test_narrow_results_of_nan_and_of_many_rows() -> None:
    x = torch.tensor([[float("nan"), float("inf"), -float("inf"), 0.0]])
    one = ops.aggregate(x, torch.arange(2), torch.zeros(1).int(), out_dtype=torch.bfloat16)
    assert one[0, 0].isnan() and torch.equal(one[0, 1:].float(), x[0, 1:])
    x, indptr, indices = torch.randn(60, 256), torch.arange(40001) * 2, torch.randint(60, (80000,)).int()
    for dtype in (torch.float32, torch.bfloat16):
        out = ops.aggregate(x, indptr, indices, out_dtype=dtype)  # enough to be written past the caches
        few = [ops.aggregate(x, indptr[:10001], part, out_dtype=dtype) for part in indices.split(20000)]
        assert torch.equal(out, torch.cat(few)), dtype


def test_opcheck() -> None:
    indptr, indices = torch.tensor([0, 2, 4]), torch.tensor([1, 2, 3, 8], dtype=torch.int32)
    x = torch.randn(9, 5, requires_grad=True)
    weight, own = torch.rand(4, requires_grad=True), torch.rand(2, requires_grad=True)
    by_source = list(ops.transpose(indptr, indices, 9))
    namespace = torch.ops.pyg_batchgnn
    tail = (2, "sum", torch.float32, 1)
    table, grad, plain = drawn_table(9, 5, seed=0), torch.randn(2, 5), x.detach()
    out = ops.aggregate(plain, indptr, indices, reduce="max")
    given_none = (indptr, indices, *[None] * 7)
    weighted = (indptr, indices, None, weight, *[None] * 4, own)
    of_weights = (indptr, indices, None, None, None, True, True, 2, 1)
    for operator, arguments in (
        (namespace.aggregate, (x, None, *weighted, by_source, *tail)),
        (namespace.aggregate, (x, None, *given_none, [], 2, "max", torch.float32, 1)),
        (namespace.aggregate, (table.codes, table.decoding, *weighted, [], *tail)),
        (namespace.transpose, (indptr, indices, 2, 9, 1)),
        (namespace.aggregate_weight_grads, (grad, plain, None, *of_weights)),
        (namespace.aggregate_weight_grads, (grad, table.codes, table.decoding, *of_weights)),
        (namespace.aggregate_max_grads, (grad, out, plain, indptr, indices, *by_source[:2], 1)),
    ):
        torch.library.opcheck(operator.default, arguments)


INDPTR, INDICES = torch.tensor([0, 1]), torch.tensor([0])
X = torch.ones(1, 2)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ops.aggregate(X, INDPTR, INDICES, reduce="mul"), ValueError, "mul"),
        (lambda: ops.aggregate(X[0], INDPTR, INDICES), ValueError, "rows, columns"),
        (lambda: ops.aggregate(X.int(), INDPTR, INDICES), TypeError, "int32"),
        (lambda: ops.aggregate(X, INDPTR, INDICES, out_dtype=torch.float16), TypeError, "float16"),
        (lambda: ops.aggregate(X.double(), INDPTR, INDICES, out_dtype=torch.float32), TypeError, "float64"),
        (lambda: ops.aggregate(X, INDPTR.int(), INDICES), TypeError, "indptr"),
        (lambda: ops.aggregate(X, INDPTR, INDICES[:0]), ValueError, "indptr must go"),
        (lambda: ops.aggregate(X, INDPTR, INDICES, edge_weight=X[0, :0]), ValueError, "edge_weight"),
        (lambda: ops.aggregate(X, INDPTR, INDICES, source_scale=X[0, :0]), ValueError, "source_scale"),
        (lambda: ops.aggregate(X, INDPTR, INDICES, target_scale=X[0, :0]), ValueError, "target_scale"),
        (lambda: ops.aggregate(X, INDPTR, INDICES, self_scale=X[0, :0]), ValueError, "self_scale"),
        (
            lambda: ops.aggregate(X, INDPTR, INDICES, reduce="max", edge_weight=X[0]),
            ValueError,
            "max.*sum and mean",
        ),
        (
            lambda: ops.aggregate(X.clone().requires_grad_(), INDPTR, INDICES, row=INDICES),
            ValueError,
            "no gradient",
        ),
        (
            lambda: ops.aggregate(X, INDPTR, INDICES, source_scale=X[0].clone().requires_grad_()),
            ValueError,
            "source_scale gets no gradient",
        ),
    ],
)
def test_refused(call: Callable[[], Tensor], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("degree", [0, 3, 50])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_transpose_is_a_stable_sort_by_source(degree: int, threads: int) -> None:
    indptr, indices = graph(9000 if degree else 5, 700, degree)
    with ops.thread_limit(threads):
        by_source = ops.transpose(indptr, indices, 700)
    target = torch.repeat_interleave(torch.arange(indptr.numel() - 1), indptr.diff())
    order = indices.long().argsort(stable=True)
    assert torch.equal(by_source.edge.long(), order) and torch.equal(by_source.targets.long(), target[order])
    assert torch.equal(by_source.ptr.diff(), torch.bincount(indices.long(), minlength=700))


@pytest.mark.parametrize("rows", [0, 2, 5])
def test_first_rows_are_a_view_with_a_gradient(rows: int) -> None:
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    found = ops.first_rows(x, rows)
    assert torch.equal(found, x[:rows]) and (rows == 0 or found.data_ptr() == x.data_ptr())
    weights = torch.randn(rows, 3, dtype=torch.float64)
    (grad,) = torch.autograd.grad((found * weights).sum(), [x])
    assert torch.equal(grad[:rows], weights) and not grad[rows:].any()


def edges(seed: int, count: int, targets: int = 4, sources: int = 9) -> ops.InEdges:
    draw = torch.Generator().manual_seed(seed)
    ends = torch.stack([torch.randint(n, (count,), generator=draw) for n in (sources, targets)])
    return ops.build_csc(ends, targets, sources)


@pytest.mark.parametrize("reduce", ops.REDUCTIONS)
@pytest.mark.parametrize("counts", [(12, 15), (12, 0), (0, 0)])
@pytest.mark.parametrize("used", [(True, True, True), (False, True, True), (True, False, False)])
def test_relations_read_one_after_the_other(
    reduce: str, counts: tuple[int, int], used: tuple[bool, bool, bool]
) -> None:
    graphs = [edges(number, count) for number, count in enumerate(counts)]
    weights = torch.randn(3, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    grads: list[Tensor] = []
    for chained in (True, False):
        x = torch.linspace(-1, 1, 27, dtype=torch.float64).view(9, 3).sin().requires_grad_()
        if chained:
            first, rest = ops.aggregate_with_targets(
                x, graphs[0].indptr, graphs[0].indices, reduce=reduce, targets=9
            )
            second, own = ops.aggregate_with_targets(
                rest, graphs[1].indptr, graphs[1].indices, reduce=reduce, targets=4
            )
        else:
            first, second = (ops.aggregate(x, one.indptr, one.indices, reduce=reduce) for one in graphs)
            own = x[:4]
        outs = zip((first, second, own), weights, used, strict=True)
        loss = torch.stack([(out * weight).sum() for out, weight, is_used in outs if is_used]).sum()
        grads += torch.autograd.grad(loss, [x])
    assert torch.allclose(grads[0], grads[1], rtol=0, atol=1e-12)


@given(st.lists(st.lists(st.integers(0, 5), max_size=4), max_size=6), st.data())
def test_ranges_of_targets(lists: list[list[int]], data: st.DataObject) -> None:
    indptr = torch.tensor([0, *map(len, lists)]).cumsum(0)
    indices = torch.tensor([source for sources in lists for source in sources], dtype=torch.int32)
    found = InEdges.checked(indptr, indices, num_sources=6)
    assert (found.num_targets, found.num_edges) == (len(lists), sum(map(len, lists)))
    assert found.degrees.tolist() == list(map(len, lists))
    begin = data.draw(st.integers(0, len(lists)))
    rows = range(begin, data.draw(st.integers(begin, len(lists))))
    pairs = [(source, row) for row in rows for source in lists[row]]
    assert list(zip(found.sources(rows).tolist(), found.targets(rows).tolist(), strict=True)) == pairs
    assert len(found.edges(rows)) == len(pairs)
    assert torch.equal(found.targets(), found.targets(range(len(lists))))


def test_edge_ids_are_positions_unless_they_are_given() -> None:
    indptr, indices, edge_ids = torch.tensor([0, 2]), torch.tensor([0, 0]), torch.tensor([7, 3])
    assert InEdges(indptr, indices).explicit_edge_ids().tolist() == [0, 1]
    assert InEdges(indptr, indices, edge_ids).explicit_edge_ids() is edge_ids


@pytest.mark.parametrize(
    ("sources", "options", "error", "text"),
    [
        ([0, 4], {}, IndexError, "indices holds 4, but node ids go from 0 to 1"),
        ([0, 4], {"num_sources": 4}, IndexError, "indices holds 4, but node ids go from 0 to 3"),
        ([0, 4], {"num_sources": 5}, None, ""),
        (
            [0, 1],
            {"edge_ids": torch.tensor([0, 9])},
            IndexError,
            "edge_ids holds 9, but edge ids go from 0 to 1",
        ),
        ([0, 1], {"num_sources": 2**31}, None, ""),
        ([0, 1], {"num_sources": 2**31 + 1}, TypeError, "cannot name all 2147483649 nodes"),
    ],
)
def test_ranges_are_checked(
    sources: list[int], options: dict[str, Any], error: type[Exception] | None, text: str
) -> None:
    arrays = torch.tensor([0, 1, 2]), torch.tensor(sources, dtype=torch.int32)
    if error is None:
        InEdges.checked(*arrays, **options)
        return
    with pytest.raises(error, match=text):
        InEdges.checked(*arrays, **options)


def test_degree_scale() -> None:
    indptr = torch.tensor([0, 0, 3, 4])
    found = ops.degree_scale(indptr, 5, loops=0, root=True, dtype=torch.float64)
    torch.testing.assert_close(found, torch.tensor([0.0, 3**-0.5, 1.0, 0.0, 0.0], dtype=torch.float64))
    assert torch.equal(
        ops.degree_scale(indptr, 5, loops=1, root=False), torch.tensor([1.0, 0.25, 0.5, 1.0, 1.0])
    )


def test_self_loops_are_dropped() -> None:
    indptr, indices = torch.tensor([0, 3, 3, 6]), torch.tensor([0, 1, 0, 2, 0, 1])
    edges, kept = ops.drop_self_loops(indptr, indices) or (None, None)
    assert edges is not None and kept is not None
    assert edges.indptr.tolist() == [0, 1, 1, 3] and edges.indices.tolist() == [1, 0, 1]
    assert kept.tolist() == [1, 4, 5]
    assert ops.drop_self_loops(torch.tensor([0, 1]), torch.tensor([1])) is None
