"""Rows of one byte: quantised, multiplied and aggregated as the decoded rows are."""

from __future__ import annotations

import copy
import operator
import sys
from collections.abc import Callable

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from pyg_batchgnn import ops
from pyg_batchgnn.ops import QuantizedTensor
from pyg_batchgnn.ops.quantized import _decode_by_torch
from tests.support.accuracy import distance
from tests.support.aggregate_cases import graph, obvious
from tests.support.linear_cases import View
from tests.support.quantized_tables import drawn_table, exactly_decoded
from tests.support.reference_attention import gradients, make_case
from tests.support.tiers import every_level, fixed

EPS = 2.0**-24
DTYPES = [torch.float32, torch.float64, torch.bfloat16]
#: Of a graph: targets, sources that are none, in-edges of a target.
SIZES = st.tuples(st.integers(0, 20), st.integers(0, 20), st.sampled_from([0, 1, 5, 60]))


def magnitudes(table: QuantizedTensor) -> Tensor:
    scale, offset = table.decoding.double()
    return 128 * scale + offset.abs()


def exact(table: QuantizedTensor) -> Tensor:
    scale, offset = table.decoding.double()
    return table.codes.double() * scale + offset


def assert_rounded(found: Tensor, wanted: Tensor, terms: Tensor, degree: int, eps: float = EPS) -> None:
    """The errors are those of float32 sums of ``degree`` terms whose sizes sum to ``terms``."""
    assert found.shape == wanted.shape
    bound = (8 + degree**0.5) * eps * terms
    assert bool(((found.double() - wanted).abs() <= bound).all())


@fixed(80)
@given(
    *(SIZES, st.integers(1, 300), st.integers(0, 3), st.sampled_from(list(ops.REDUCTIONS))),
    *(st.tuples(*[st.booleans()] * 3), st.sampled_from(DTYPES), st.integers(0, 1000)),
)
def test_aggregate(
    sizes: tuple[int, int, int],
    columns: int,
    margin: int,
    reduce: str,
    flags: tuple[bool, bool, bool],
    dtype: torch.dtype,
    seed: int,
) -> None:
    (targets, extra, degree), (weighted, own, viewed) = sizes, flags
    sources = targets + extra
    indptr, indices = graph(targets, sources, degree if sources else 0, seed)
    torch.manual_seed(seed)
    whole = drawn_table(sources + 3, columns + margin, seed)
    table = QuantizedTensor(whole.codes[:, :columns], whole.decoding[:, :columns].contiguous())
    row = torch.randint(0, sources + 3, (sources,)) if viewed else None
    weights: dict[str, Tensor] = {}
    if weighted and reduce in ops.SUMS:
        weights = {
            "edge_weight": torch.randn(indices.numel()),
            "source_scale": torch.rand(sources + 3),
            "target_scale": torch.rand(targets),
        }
    if own and reduce in ops.SUMS:
        weights["self_scale"] = torch.randn(targets if seed % 2 else 1)
    found = ops.aggregate(table, indptr, indices, row=row, reduce=reduce, out_dtype=dtype, **weights)
    rows = exact(table) if row is None else exact(table)[row]
    wide = {name: weight.double() for name, weight in weights.items()}
    wanted = obvious(rows, indptr, indices, reduce, **wide)
    largest = magnitudes(table).expand_as(rows)
    terms = obvious(largest, indptr, indices, reduce, **{name: one.abs() for name, one in wide.items()})
    assert_rounded(found, wanted, terms, degree, 2.0**-9 if dtype == torch.bfloat16 else EPS)
    if reduce not in ops.SUMS:
        decoded = table.dequantize() if row is None else table.dequantize()[row]
        assert torch.equal(found, ops.aggregate(decoded, indptr, indices, reduce=reduce).to(dtype))


@pytest.mark.parametrize("columns", [1, 5, 100, 256, 300])
@pytest.mark.parametrize("degree", [2048, 2049, 9000])
@pytest.mark.parametrize("reduce", ops.REDUCTIONS)
def test_hubs(degree: int, columns: int, reduce: str) -> None:
    indptr = torch.tensor([0, 3, 3 + degree, 5 + degree, 5 + 2 * degree])
    indices = torch.randint(50, (int(indptr[-1]),)).int()
    table = drawn_table(50, columns, seed=degree)
    plain = reduce not in ops.SUMS
    weights = {} if plain else {"edge_weight": torch.rand(indices.numel()), "self_scale": torch.rand(4)}
    wide = {name: one.double() for name, one in weights.items()}
    wanted = obvious(exact(table), indptr, indices, reduce, **wide)
    terms = obvious(magnitudes(table).expand(50, -1), indptr, indices, reduce, **wide)
    results = []
    for threads in (1, 2, 3):
        with ops.thread_limit(threads):
            results.append(ops.aggregate(table, indptr, indices, reduce=reduce, **weights))
    assert_rounded(results[0], wanted, terms, degree)
    assert all(torch.equal(one, results[0]) for one in results)


def test_an_unweighted_mean_of_equal_rows_is_the_row() -> None:
    """The offset of a column is added once, not a rounded number of times."""
    table = QuantizedTensor(torch.full((1, 40), 3, dtype=torch.int8), drawn_table(1, 40, seed=1).decoding)
    for degree in (1, 3, 7, 49):
        found = ops.aggregate(table, torch.tensor([0, degree]), torch.zeros(degree).int(), reduce="mean")
        terms = magnitudes(table)
        assert_rounded(found, exact(table), terms, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_of_weights(dtype: torch.dtype) -> None:
    table = drawn_table(40, 33, seed=0, extreme=False)
    indptr, indices = graph(20, 40, 9)
    leaves = [torch.rand(indices.numel(), dtype=dtype), torch.rand(20, dtype=dtype)]
    leaves = [one.requires_grad_() for one in leaves]

    def result(x: Tensor) -> list[Tensor]:
        out = ops.aggregate(x, indptr, indices, edge_weight=leaves[0], self_scale=leaves[1], out_dtype=dtype)
        return gradients(out, leaves)

    for one, two in zip(result(table), result(exact(table).to(dtype)), strict=True):
        assert distance(one, two) < 1e-5


@fixed(60)
@given(
    *(st.sampled_from([0, 1, 5, 64, 193, 1100]), st.sampled_from([1, 3, 16, 47, 130]), st.integers(1, 120)),
    *(st.sampled_from([1, 1, 2, 3]), st.booleans(), st.booleans(), st.sampled_from(DTYPES)),
    st.integers(0, 1000),
)
def test_linear(
    rows: int,
    outputs: int,
    columns: int,
    groups: int,
    viewed: bool,
    sparse: bool,
    dtype: torch.dtype,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    table = drawn_table(rows + 2, columns * groups, seed)
    if sparse:  # codes of zero that stand for zero
        table.codes[torch.rand(table.shape) < 0.8], table.decoding[1] = 0, 0
    second = torch.randn(rows, 7 * groups, requires_grad=True)
    row = torch.randint(0, rows + 2, (rows,))
    weight = torch.float64 if dtype == torch.float64 else torch.float32
    leaves = [torch.randn(groups * outputs, width, dtype=weight) for width in (columns, 7)]
    leaves = [one.requires_grad_() for one in (*leaves, torch.randn(groups * outputs, dtype=weight))]

    def result(x: Tensor) -> list[Tensor]:
        first = View(x, row) if viewed else x
        y = ops.linear(
            [first, second], leaves[:2], leaves[2], num_rows=rows, groups=groups, relu=True, drop=0.3, key=5,
            out_dtype=dtype,
        )  # fmt: skip
        return [y, *gradients(y, [*leaves, second])]

    for one, two in zip(result(table), result(table.dequantize()), strict=True):
        assert torch.equal(one, two)


def test_products_of_torch_decode_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    table, weight = drawn_table(20, 7, seed=0), torch.randn(5, 7)
    monkeypatch.setattr(sys.modules[ops.linear.__module__], "BLOCK_ROWS", 6)
    before = ops.set_products("torch")
    try:
        asked = []
        decode = QuantizedTensor.dequantize
        monkeypatch.setattr(QuantizedTensor, "dequantize", lambda x: (asked.append(len(x)), decode(x))[1])
        found = ops.linear([table], [weight])
    finally:
        ops.set_products(before)
    assert max(asked) == 6
    assert distance(found, exact(table) @ weight.double().t()) < 1e-5


@pytest.mark.parametrize("outputs", [8, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_linear_norm(outputs: int, dtype: torch.dtype) -> None:
    """Product then norm, or the norm folded into the weight."""
    table = drawn_table(700, 17, seed=1, extreme=False)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    torch.manual_seed(0)
    leaves = [torch.randn(outputs, 17, dtype=wide).requires_grad_()]
    leaves += [torch.rand(outputs, dtype=wide).requires_grad_() for _ in range(2)]

    def result(x: Tensor) -> list[Tensor]:
        y, mean, variance = ops.linear_norm(x, leaves[0], None, *leaves[1:], relu=True, out_dtype=dtype)
        return [y, mean, variance, *gradients(y, leaves)]

    for one, two in zip(result(table), result(table.dequantize()), strict=True):
        assert torch.equal(one, two)


@fixed(40)
@given(
    st.integers(1, 12),
    *(st.sampled_from(one) for one in ([0, 5, 60], [1, 3, 16, 33, 100], [1, 2, 3, 4], [0, 3], [0.0, 0.4])),
    *(st.tuples(*[st.booleans()] * 4), st.integers(0, 1000)),
)
def test_attention(
    targets: int,
    edges: int,
    columns: int,
    heads: int,
    edge_columns: int,
    drop: float,
    flags: tuple[bool, ...],
    seed: int,
) -> None:
    by_target, loops, viewed, bfloat16 = flags
    case = make_case(
        *(targets, targets + 4, edges, columns, heads, targets if loops else None),
        seed=seed, dtype=torch.float32, rows=viewed, edge_columns=edge_columns, by_target=by_target,
    )  # fmt: skip
    table = drawn_table(targets + 4, columns, seed, extreme=False)
    table.decoding[0] /= 60
    weights = list(case.weights.values())

    def result(x: Tensor, dtype: torch.dtype) -> list[Tensor]:
        case.x = x
        case.weights = dict(zip(case.weights, weights, strict=True))
        if dtype == torch.float64:
            case.weights = {name: one.double() for name, one in case.weights.items()}
        stored = torch.bfloat16 if bfloat16 and dtype == torch.float32 else dtype
        found = case.run(drop=drop, key=seed, out_dtype=stored)
        parts = [found.out, found.coefficient.abs(), found.total]
        return [*parts, *gradients(torch.cat([one.double().flatten() for one in parts]), weights)]

    found, decoded = result(table, torch.float32), result(table.dequantize(), torch.float32)
    wanted = result(exact(table), torch.float64)
    for one, two, three in zip(found, decoded, wanted, strict=True):
        assert distance(one, three, 1.0) <= 4 * distance(two, three, 1.0) + (1e-2 if bfloat16 else 3e-5)


def test_keys_and_values_by_head_are_decoded_first() -> None:
    case = make_case(4, 7, 20, 5, 2, None, dtype=torch.float32, by_head=True)
    table = drawn_table(7, 20, seed=0, extreme=False)
    case.x, case.row = table, torch.tensor([3, 3, 0, 1, 2, 6, 5])
    found = case.run().out
    case.x = table.dequantize()
    assert torch.equal(found, case.run().out)


@every_level
def test_rows_of_every_width() -> None:
    indptr, indices = graph(50, 90, 30)
    for columns in (1, 4, 7, 8, 9, 15, 16, 17, 31, 33, 100, 104, 105, 255, 257, 300):
        table = drawn_table(90, columns, columns)
        for reduce in ops.REDUCTIONS:
            own = torch.rand(50) if reduce in ops.SUMS else None
            scales = {} if own is None else {"self_scale": own.double()}
            answers = []
            for threads in (1, 2, 5):
                with ops.thread_limit(threads):
                    answers.append(ops.aggregate(table, indptr, indices, reduce=reduce, self_scale=own))
            assert all(torch.equal(one, answers[0]) for one in answers)
            wanted = obvious(exact(table), indptr, indices, reduce, **scales)
            terms = obvious(magnitudes(table).expand(90, -1), indptr, indices, reduce, **scales)
            assert_rounded(answers[0], wanted, terms, 30)
        for dtype in (torch.float32, torch.bfloat16):
            weight = torch.randn(9, columns)
            answers = [ops.linear([x], [weight], out_dtype=dtype) for x in (table, table.dequantize())]
            assert torch.equal(*answers)
        case = make_case(6, 9, 30, columns, 3, 4, dtype=torch.float32)
        case.x = drawn_table(9, columns, columns, extreme=False)
        case.x.decoding[0] /= 60
        found = case.run().out
        case.x = case.x.dequantize()
        assert float((found - case.run().out).abs().max()) < 1e-3


@every_level
def test_rows_of_every_width_are_decoded_to_the_same_bits() -> None:
    for columns in (*range(1, 36), 64, 100, 300):
        for dtype in (torch.float32, torch.bfloat16):
            table = drawn_table(9, columns, seed=columns, dtype=dtype)
            index = torch.randint(0, 9, (20,))
            assert torch.equal(ops.gather_rows(table, index), exactly_decoded(table)[index]), columns


@fixed(60)
@given(
    rows=st.integers(1, 30),
    columns=st.integers(1, 300),
    asked=st.integers(0, 90),
    step=st.integers(1, 3),
    margin=st.integers(0, 5),
    wide=st.booleans(),
    dtype=st.sampled_from(ops.DECODED),
    seed=st.integers(0, 1000),
)
def test_gathers_decoded_rows(
    rows: int, columns: int, asked: int, step: int, margin: int, wide: bool, dtype: torch.dtype, seed: int
) -> None:
    whole = drawn_table(rows * step, columns + margin, seed, dtype)
    table = QuantizedTensor(whole.codes[::step, :columns], whole.decoding[:, :columns], dtype)
    wanted = exactly_decoded(table)
    assert torch.equal(table.dequantize(), wanted)
    index = torch.randint(0, rows, (asked,)).to(torch.int64 if wide else torch.int32)
    assert torch.equal(ops.gather_rows(table, index), wanted[index])
    out = torch.full((asked, columns + 2), 7.0, dtype=dtype)
    ops.put_rows(out[:, 1:-1], table, index)
    assert torch.equal(out[:, 1:-1], wanted[index])
    assert bool((out[:, [0, -1]] == 7).all())


def test_many_rows_on_several_threads() -> None:
    table = drawn_table(300, 100, seed=0)
    index = torch.randint(0, 300, (21_003,))  # of 8 MiB and more: past the caches
    with ops.thread_limit(2):
        found = ops.gather_rows(table, index)
    assert torch.equal(found, exactly_decoded(table)[index])


def test_rounds_once() -> None:
    """The sum lies so near the middle of two floats that float64 would round it there."""
    codes = torch.tensor([[65]], dtype=torch.int8)
    decoding = torch.tensor([[16519105 * 2.0**-54], [1.0]])  # 65 * scale = 2**-24 + 2**-54
    table = QuantizedTensor(codes, decoding)
    assert float(codes.double() * decoding[0].double() + 1) == 1 + 2**-24  # halfway, to even: 1
    for found in (table.dequantize(), _decode_by_torch(codes, decoding), exactly_decoded(table)):
        assert float(found) == 1 + 2**-23


@pytest.mark.parametrize("columns", [None, 5])
@pytest.mark.parametrize(
    "index",
    [
        torch.tensor([3, 0, 3]),
        torch.tensor([-1, 2]),
        torch.tensor([[1, 2], [-6, 4]]),
        torch.tensor(4),
        torch.tensor([], dtype=torch.int64),
        torch.tensor([True, False, True, False, False, True]),
        [1, -2],
        2,
        -1,
        slice(1, 5, 2),
    ],
    ids=str,
)
def test_selects_rows_as_torch_does(index: object, columns: int | None) -> None:
    table = drawn_table(6, columns, seed=1)
    found = table[index]
    decoded = found.dequantize() if isinstance(found, QuantizedTensor) else found
    assert torch.equal(decoded, exactly_decoded(table)[index])


def test_other_selections() -> None:
    table = drawn_table(6, 4, seed=2)
    wanted = exactly_decoded(table)
    for index in (torch.tensor([5, 0]), torch.tensor([5, 0], dtype=torch.int32), torch.tensor(2)):
        assert torch.equal(table.index_select(0, index), wanted.index_select(0, index))
        assert torch.equal(functional.embedding(index, table), wanted[index])
    part = table[1:, 1:3]
    assert isinstance(part, QuantizedTensor) and torch.equal(part.dequantize(), wanted[1:, 1:3])
    assert torch.equal(ops.gather_rows(part, torch.tensor([4, 0])), wanted[[5, 1], 1:3])
    mask = wanted > 0
    assert torch.equal(table[mask], wanted[mask])
    assert torch.equal(table[:, torch.tensor([1])], wanted[:, [1]])


def test_views_in_inference_mode_and_what_leaves_torch() -> None:
    table = drawn_table(6, 4, seed=2)
    wanted = exactly_decoded(table)
    with torch.inference_mode():
        for view in (lambda x: x[1:3], lambda x: x[2], lambda x: x.view(-1), lambda x: x.detach()):
            assert torch.equal(ops.decoded(view(table)), view(wanted))
    assert np.array_equal(np.asarray(table), wanted.numpy()) and table.tolist() == wanted.tolist()
    assert torch.equal(torch.from_dlpack(table), wanted)
    # A null pointer would end whoever reads it.
    with pytest.raises(RuntimeError, match="Cannot access data pointer"):
        torch.utils.dlpack.to_dlpack(table)
    assert torch.equal(copy.deepcopy(table[1:]), wanted[1:]) and table.data_ptr() == 0
    with pytest.raises(TypeError, match=r"no memory of floats .* table.dequantize\(\)"):
        safetensors.torch.save({"x": table})
    assert safetensors.torch.save({"x": table.dequantize()})


WRITES: list[Callable[[Tensor], object]] = [
    lambda x: x.add_(1),
    lambda x: x.fill_diagonal_(0),
    lambda x: operator.setitem(x, 0, 1.0),
    lambda x: torch.add(x, 1, out=x),
    lambda x: torch._foreach_zero_([x]),
]


@pytest.mark.parametrize("number", range(len(WRITES)))
def test_writes_are_refused(number: int) -> None:
    with pytest.raises(TypeError, match="would write to a QuantizedTensor, whose rows are constant"):
        WRITES[number](drawn_table(6, 4, seed=2))


@pytest.mark.parametrize("select", [lambda x, i: x[i], lambda x, i: x.index_select(0, i), ops.gather_rows])
@pytest.mark.parametrize("index", [[6], [0, -7]])
def test_rows_out_of_range(select: Callable[[Tensor, Tensor], Tensor], index: list[int]) -> None:
    with pytest.raises(IndexError, match="index holds"):
        select(drawn_table(6, 4, seed=3), torch.tensor(index))
    for kind in (torch.tensor(index).to_sparse(), torch.tensor(index).to("meta")):
        with pytest.raises(ValueError, match=r"index is .*(torch.sparse_coo|on meta)"):
            select(drawn_table(6, 4, seed=3), kind)


@pytest.mark.parametrize(
    ("scale", "offset"), [(0.0, 0.0), (-1.0, 0.0), (float("nan"), 0.0), (1.0, float("inf"))]
)
def test_refuses_scales_that_are_not_positive(scale: float, offset: float) -> None:
    decoding = torch.tensor([[1.0, scale], [0.0, offset]])
    with pytest.raises(ValueError, match="column 1 has the scale"):
        QuantizedTensor(torch.zeros(3, 2, dtype=torch.int8), decoding)


def test_put_rows_wants_rows_of_the_decoded_dtype() -> None:
    table = drawn_table(6, 4, seed=4)
    with pytest.raises(ValueError, match="cannot be put into"):
        ops.put_rows(torch.empty(6, 4, dtype=torch.bfloat16), table)
    out: Tensor = torch.empty(3, 4)
    ops.put_rows(out, table)
    assert torch.equal(out, exactly_decoded(table)[:3])


@pytest.mark.parametrize("dtype", ops.DECODED)
def test_operators_are_registered_in_full(dtype: torch.dtype) -> None:
    table = drawn_table(6, 4, seed=5)
    index, out = torch.tensor([1, 5, 1]), torch.empty(3, 4, dtype=dtype)
    kernels = torch.ops.pyg_batchgnn
    torch.library.opcheck(kernels.gather_decoded.default, (table.codes, table.decoding, index, dtype, 1))
    torch.library.opcheck(kernels.put_decoded.default, (table.codes, table.decoding, index, out, 1))
