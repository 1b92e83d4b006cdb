"""Dense layers: equality with torch, bits that do not depend on how they are computed, refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pyg_batchgnn import ops
from tests.support.linear_cases import TOLERANCE, Case, View, distance, gradients, make_case

SHAPES = st.fixed_dictionaries(
    {
        "rows": st.sampled_from([0, 1, 2, 5, 6, 7, 63, 64, 65, 100, 193, 600]),
        "outputs": st.sampled_from([1, 2, 3, 8, 9, 16, 17, 47, 64, 65, 130]),
        "columns": st.lists(st.sampled_from([0, 1, 2, 5, 16, 33, 100]), min_size=1, max_size=3).map(tuple),
        "groups": st.sampled_from([1, 1, 2, 3]),
        "bias": st.booleans(),
        "seed": st.integers(0, 99),
    }
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(shape=SHAPES, relu=st.booleans(), threads=st.integers(1, 3))
@settings(max_examples=40)
def test_equals_torch(dtype: torch.dtype, shape: dict[str, Any], relu: bool, threads: int) -> None:
    case = make_case(dtype=dtype, **shape)
    y = case.run(relu=relu, threads=threads)
    wanted = case.reference()
    # ReLU as the layer decided: near zero the two may round to different sides.
    wanted = torch.where(y > 0, wanted, 0 * wanted) if relu else wanted
    assert y.dtype is dtype and distance(y, wanted) < TOLERANCE[dtype]
    for found, expected in zip(gradients(y, case.leaves()), gradients(wanted, case.leaves()), strict=True):
        least = max(shape["rows"], 1) ** 0.5  # of a sum over rows
        assert found.dtype is dtype and distance(found, expected, least) < TOLERANCE[dtype]


@pytest.mark.parametrize("level", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tables_of_every_dtype(dtype: torch.dtype, level: torch.dtype) -> None:
    case = make_case(130, 47, (5, 33, 16), dtype=dtype, table_dtype=level)
    y = case.run()
    assert distance(y, case.reference()) < TOLERANCE[dtype]
    for found, expected in zip(
        gradients(y, case.leaves()), gradients(case.reference(), case.leaves()), strict=True
    ):
        assert distance(found, expected) < TOLERANCE[dtype]


def test_half_precision_tables_hold_every_value() -> None:
    bits = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16)
    for dtype in (torch.float16, torch.bfloat16):
        table = bits.view(dtype)[:, None]
        y = ops.linear([View(table, torch.arange(1 << 16))], [torch.ones(1, 1)])
        assert torch.equal(y.nan_to_num(1234.5), table.float().nan_to_num(1234.5))


@pytest.mark.parametrize("master", [torch.float32, torch.bfloat16])
@given(shape=SHAPES)
@settings(max_examples=25)
def test_bfloat16(master: torch.dtype, shape: dict[str, Any]) -> None:
    case = make_case(dtype=master, **shape)
    y = case.run(out_dtype=torch.bfloat16)
    rounded = make_case(dtype=torch.bfloat16, **shape)
    wanted = rounded.reference()
    # The reference rounds the bias, which the layer adds as it is before it rounds the sum.
    least = 1e-30 if case.bias is None else float(case.bias.detach().abs().max())
    assert y.dtype is torch.bfloat16 and distance(y, wanted, least) < 2**-7
    expected = gradients(wanted.to(torch.bfloat16), rounded.leaves())
    for found, one, leaf in zip(gradients(y, case.leaves()), expected, case.leaves(), strict=True):
        assert found.dtype is leaf.dtype and distance(found, one) < TOLERANCE[torch.bfloat16]


@pytest.mark.parametrize("columns", [(100, 100), (256, 33), (1,)])
@pytest.mark.parametrize(("relu", "drop"), [(True, 0.5), (True, 0.3), (False, 0.0)])
@pytest.mark.parametrize(("rows", "outputs", "groups"), [(1, 1, 1), (65, 47, 2), (1300, 130, 1)])
def test_gradients_in_bfloat16_are_float32_sums(
    rows: int, outputs: int, groups: int, relu: bool, drop: float, columns: tuple[int, ...]
) -> None:
    """Between rounded operands nothing is rounded to bfloat16 before the sums are complete."""
    case = make_case(rows, outputs, columns, groups, table_dtype=torch.float16)
    y = case.run(out_dtype=torch.bfloat16, relu=relu, drop=drop, key=3)
    rounded = make_case(rows, outputs, columns, groups, table_dtype=torch.float16)
    with torch.no_grad():
        for leaf in (*rounded.leaves(), *(x.table for x in rounded.inputs[1:])):
            leaf.copy_(leaf.bfloat16())
    scale = ops.dropout_scale(drop) if drop else 1.0
    passed = (y != 0).double() * scale if relu or drop else torch.ones(y.shape, dtype=torch.float64)
    found = gradients(y, case.leaves())
    grad = 1 + torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = torch.autograd.grad(rounded.reference(), rounded.leaves(), grad.bfloat16().double() * passed)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype is torch.float32 and distance(one, other) < 4e-6


@pytest.mark.parametrize("update", [{}, {"relu": True}, {"relu": True, "drop": 0.5}, {"drop": 0.3}])
@pytest.mark.parametrize("outputs", [47, 64 + 47])
@pytest.mark.parametrize("rows", [1, 7, 20_000])
def test_whole_words_of_bfloat16_end_as_parts_of_words_do(
    rows: int, outputs: int, update: dict[str, Any]
) -> None:
    """Loops of their own round, mask and write 64 columns at a time."""
    case = make_case(rows, 256, (9, 4), dtype=torch.bfloat16)
    parts = [weight[:outputs] for weight in case.weights], case.bias[:outputs]
    whole = case.run(key=3, **update)
    part = ops.linear(case.inputs, *parts, num_rows=rows, out_dtype=torch.bfloat16, key=3, **update)
    assert torch.equal(whole[:, :outputs], part)
    grad = torch.randn(whole.shape).bfloat16()
    grad[:, outputs:] = 0
    found = torch.autograd.grad(whole, case.leaves(), grad)
    expected = torch.autograd.grad(part, case.leaves(), grad[:, :outputs].contiguous())
    for one, other in zip(found, expected, strict=True):
        assert distance(one, other) < 2**-8


@pytest.mark.parametrize("columns", [7, 8, 9, 15, 16, 17, 24, 25, 200, 232, 248, 256])
def test_bfloat16_gradients_of_columns_do_not_depend_on_those_beside_them(columns: int) -> None:
    """Whole vectors and halves of them are summed by loops of their own, in the same order."""
    case = make_case(200, 20, (256,), dtype=torch.bfloat16)
    first = case.inputs[0].detach()[:, :columns].requires_grad_()
    weight = case.weights[0].detach()[:, :columns].requires_grad_()
    y = ops.linear([first], [weight], num_rows=200, out_dtype=torch.bfloat16)
    grad = torch.randn(200, 20).bfloat16() * (torch.rand(200, 20) < 0.25)
    grad[:, 3] = 0
    few = torch.autograd.grad(y, [first, weight], grad)
    all_of = torch.autograd.grad(case.run(), [case.inputs[0], case.weights[0]], grad)
    for one, other in zip(few, all_of, strict=True):
        assert torch.equal(one, other[:, :columns])


def test_bfloat16_rounds_to_nearest_even() -> None:
    values = torch.randn(1000, 1).mul(torch.logspace(-30, 30, 1000)[:, None])
    halfway = (torch.randint(1 << 15, (500, 1), dtype=torch.int32) * 65536 + 32768).view(torch.float32)
    special = torch.tensor([[float("inf")], [float("-inf")], [float("nan")], [0.0], [3.4e38]])
    x = torch.cat([values, halfway, special])
    y = ops.linear([torch.zeros(len(x), 1)], [torch.zeros(1, 1)], torch.zeros(1), out_dtype=torch.bfloat16)
    assert torch.equal(y, torch.zeros_like(y))
    for value in (*x[::97, 0], *special[:, 0]):
        y = ops.linear([torch.zeros(1, 1)], [torch.zeros(1, 1)], value[None], out_dtype=torch.bfloat16)
        assert torch.equal(y[0].nan_to_num(7.0), value[None].to(torch.bfloat16).nan_to_num(7.0))


# Dropout ##########################################################################################


def keeps(key: int, nodes: Tensor, columns: int, drop: float) -> Tensor:
    """The definition in csrc/kernels/nn/dropout.h, element by element."""
    mask = (1 << 64) - 1

    def mix(z: int) -> int:
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    gamma, levels = 0x9E3779B97F4A7C15, int((1 - drop) * 65536 + 0.5)
    kept = torch.zeros(len(nodes), columns, dtype=torch.bool)
    for i, node in enumerate(nodes.tolist()):
        row_key = mix((((key & mask) ^ (node & mask)) + gamma) & mask)
        for column in range(columns):
            word = mix((row_key + (column // 4 + 1) * gamma) & mask)
            kept[i, column] = (word >> (16 * (column % 4))) % 65536 < levels
    return kept


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("drop", [0.1, 0.5, 1e-7, 0.9999])
def test_dropout_is_as_defined(drop: float, relu: bool, groups: int) -> None:
    case = make_case(40, 47, (9, 3), groups=groups, dtype=torch.float64)
    node = torch.randint(-(1 << 62), 1 << 62, (40,))
    key = ops.dropout_key(1, 2, 3, 4)
    kept = keeps(key, node, 47 * groups, drop)
    y = case.run(relu=relu, drop=drop, key=key, node=node)
    before = case.reference()
    wanted = torch.where(kept, before.relu() if relu else before, 0.0) * ops.dropout_scale(drop)
    assert distance(y, wanted) < 1e-13
    for found, expected in zip(gradients(y, case.leaves()), gradients(wanted, case.leaves()), strict=True):
        assert distance(found, expected) < 1e-13


def test_dropout_counts_rows_where_there_are_no_ids() -> None:
    case = make_case(100, 40, (8,))
    by_row = case.run(drop=0.5, key=9)
    assert torch.equal(by_row, case.run(drop=0.5, key=9, node=torch.arange(100)))
    assert not torch.equal(by_row == 0, case.run(drop=0.5, key=10) == 0)


@pytest.mark.parametrize("drop", [0.1, 0.5, 0.9])
def test_dropout_drops_as_often_as_said_and_keeps_the_mean(drop: float) -> None:
    ones = torch.ones(4000, 1)
    y = ops.linear([ones], [torch.ones(100, 1)], drop=drop, key=5)
    spread = (drop * (1 - drop) / y.numel()) ** 0.5
    assert abs(float((y == 0).float().mean()) - drop) < 5 * spread
    assert abs(float(y.double().mean()) - 1) < 5 * spread / (1 - drop)


# Same bits ########################################################################################


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_same_bits_on_any_number_of_threads(dtype: torch.dtype) -> None:
    case = make_case(5000, 65, (20, 33), dtype=dtype)

    def answers(threads: int) -> list[Tensor]:
        y = case.run(relu=True, drop=0.4, key=3, threads=threads)
        return [y, *gradients(y, case.leaves())]

    first = answers(1)
    for threads in (2, 3, 4, 8, 16):
        for one, other in zip(first, answers(threads), strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_row_has_the_same_bits_wherever_it_is_computed(dtype: torch.dtype) -> None:
    case = make_case(700, 130, (40, 17), dtype=dtype)
    whole = case.run()
    for rows in (1, 5, 6, 97, 500):
        assert torch.equal(whole[:rows], Case(case.inputs, case.weights, case.bias, rows, 1).run())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_skipping_zeros_changes_no_bit(dtype: torch.dtype) -> None:
    """Blocks of 64 rows are dense or sparse by their own zeros; a few more zeros elsewhere in a
    block move it over the edge without touching the rows and columns that are compared.
    """
    case = make_case(512, 130, (40, 17), dtype=dtype)
    y = case.run()
    generator = torch.Generator().manual_seed(7)
    grad = torch.randn(y.shape, generator=generator).to(dtype)
    zeros = torch.rand(y.shape, generator=generator) < torch.linspace(0, 1, 512)[:, None]
    sparse = grad.masked_fill(zeros, 0)
    # The same non-zeros, with columns 65 to 129 full: every block counts as dense.
    full = torch.cat([sparse[:, :65], grad[:, 65:] + 3], 1)
    empty = torch.cat([sparse[:, :65], torch.zeros_like(grad[:, 65:])], 1)
    one, other = (torch.autograd.grad(y, case.weights, g, retain_graph=True) for g in (full, empty))
    for a, b in zip(one, other, strict=True):
        assert torch.equal(a[:65], b[:65])
    padded = torch.cat([grad[:, :65], torch.zeros_like(grad[:, 65:])], 1)
    narrow = Case(case.inputs, [w[:65] for w in case.weights], None, 512, 1)
    (wide_grad,) = torch.autograd.grad(y, case.inputs[:1], padded)
    (narrow_grad,) = torch.autograd.grad(narrow.run(), case.inputs[:1], grad[:, :65].contiguous())
    assert torch.equal(wide_grad, narrow_grad)


# Autograd and torch's own checks ##################################################################


def test_gradcheck() -> None:
    case = make_case(5, 6, (3, 4), groups=2, dtype=torch.float64)

    def run(x: Tensor, *rest: Tensor) -> Tensor:
        return ops.linear(
            [x, case.inputs[1]], rest[:2], rest[2], num_rows=5, groups=2, relu=True, drop=0.3, key=4
        )

    assert torch.autograd.gradcheck(run, case.leaves())


def test_rows_beyond_the_last_get_no_gradient() -> None:
    case = make_case(10, 4, (3,))
    (grad,) = torch.autograd.grad(case.run().sum(), case.inputs[:1])
    assert grad.shape == (13, 3) and not grad[10:].any() and grad[:10].all()


def test_only_what_is_asked_for_gets_a_gradient() -> None:
    case = make_case(10, 4, (3, 5))
    for leaf in case.leaves():
        leaf.requires_grad_(False)
    assert not case.run().requires_grad
    for leaf in case.leaves():
        leaf.requires_grad_()
        (grad,) = torch.autograd.grad(case.run().sum(), [leaf])
        assert grad.shape == leaf.shape
        leaf.requires_grad_(False)


def test_an_input_changed_in_place_is_noticed() -> None:
    case = make_case(10, 4, (3,))
    y = case.run(relu=True)
    with torch.no_grad():
        case.weights[0].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("update", [{}, {"relu": True, "drop": 0.5}])
def test_opcheck(update: dict[str, Any]) -> None:
    case = make_case(20, 6, (3, 4), groups=2)
    tables, rows = [case.inputs[0], case.inputs[1].table], [None, case.inputs[1].row]
    relu, drop = update.get("relu", False), update.get("drop", 0.0)
    arguments = (tables, rows, case.weights, case.bias, 20, 2, torch.float32, relu, drop, 3, None, False, 2)
    torch.library.opcheck(torch.ops.pyg_batchgnn.linear.default, arguments)
    y, mask = torch.ops.pyg_batchgnn.linear(*arguments)
    detached = [t.detach() for t in tables], rows, [w.detach() for w in case.weights]
    backward = (torch.randn(y.shape), mask, 2.0, *detached, None, 2, True, [True, False], True, True, 2)
    torch.library.opcheck(torch.ops.pyg_batchgnn.linear_grads.default, backward)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("threads", [1, 4])
def test_memory_is_used_again(dtype: torch.dtype, threads: int) -> None:
    # Rows that are read in place and rows that are converted; threads that may begin too late for
    # any work.
    case = make_case(20000, 64, (32, 33), dtype=dtype, table_dtype=torch.float16)

    def step() -> None:
        case.run(relu=True, drop=0.5, threads=threads).sum().backward()

    ops.empty_cache()  # blocks that other tests left may be given back meanwhile
    for _ in range(3):
        step()
    before = ops.memory_stats().system_calls
    for _ in range(5):
        step()
    assert ops.memory_stats().system_calls == before


def test_views_of_rows_and_copies_where_there_must_be() -> None:
    wide, weight = torch.randn(40, 30), torch.randn(7, 5)
    for x in (wide[:, 3:8], wide[::2, 3:8], wide.t()[:, :5], wide[:, ::6], wide[:0, :5]):
        assert distance(ops.linear([x], [weight]), x @ weight.t()) < 3e-6
    row = torch.tensor([3, 0, 19])
    y = ops.linear([View(wide[::2, 3:8], row)], [weight])
    assert distance(y, wide[::2, 3:8][row] @ weight.t()) < 3e-6
    grad = torch.ones(7, 1).expand(7, 3).t()
    weight.requires_grad_()
    (found,) = torch.autograd.grad(ops.linear([View(wide[:, :5], row)], [weight]), [weight], grad)
    assert distance(found, grad.t() @ wide[:, :5][row]) < 3e-6


X, W = torch.randn(4, 3), torch.randn(6, 3)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (([], []), {}, ValueError, "one weight per input"),
        (([X, X], [W]), {}, ValueError, "one weight per input"),
        (([X], [torch.randn(6, 4)]), {}, ValueError, "3 columns"),
        (([X], [W]), {"groups": 0}, ValueError, "positive"),
        (([torch.randn(4, 12)], [W]), {"groups": 4}, ValueError, "equal groups"),
        (([X], [W]), {"num_rows": 5}, ValueError, "has 4 rows"),
        (([X], [W]), {"num_rows": -1}, ValueError, "num_rows is -1"),
        (([X], [W]), {"drop": 1.5}, ValueError, "below 1"),
        (([X], [W]), {"drop": 0.5, "node": torch.arange(3)}, ValueError, "3 ids for 4 rows"),
        (([X], [W]), {"drop": 0.5, "node": torch.arange(4).int()}, TypeError, "int64"),
        (([X], [W.half()]), {}, TypeError, "float32, bfloat16 or float64"),
        (([X.double()], [W]), {}, TypeError, "cannot be multiplied"),
        (([X.int()], [W]), {}, TypeError, "cannot be multiplied"),
        (([X], [W]), {"out_dtype": torch.float64}, TypeError, "call .double"),
        (([X], [W.bfloat16()]), {"out_dtype": torch.float32}, TypeError, "all alike"),
        (([X], [W], torch.randn(5)), {}, ValueError, "bias must be"),
        (([X], [W], torch.randn(6).double()), {}, ValueError, "bias must be"),
        (([X[0]], [W]), {}, ValueError, r"\[N, K\]"),
        (([View(X, torch.tensor([4]))], [W]), {}, IndexError, "holds 4"),
        (([View(X, torch.tensor([-1]))], [W]), {}, IndexError, "holds -1"),
        (([View(X.t().contiguous().t(), torch.tensor([1]))], [W]), {}, ValueError, "not contiguous"),
        (([View(X.clone().requires_grad_(), torch.tensor([1]))], [W]), {}, ValueError, "no gradient"),
        (([X.half().requires_grad_()], [W]), {}, TypeError, "no gradient"),
    ],
)
def test_refuses(arguments: Any, options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ops.linear(*arguments, **options)
