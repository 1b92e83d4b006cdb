"""Dense layers: equality with torch, bits that do not depend on how they are computed, refusals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pyg_batchgnn import ops
from tests.support.accuracy import distance
from tests.support.linear_cases import SHAPES, TOLERANCE, Case, View, gradients, make_case
from tests.support.programs import WIDTHS, run_at_level
from tests.support.quantized_tables import drawn_table
from tests.support.tiers import examples


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(shape=SHAPES, relu=st.booleans(), threads=st.integers(1, 3))
@examples(40)
def test_equals_torch(dtype: torch.dtype, shape: dict[str, Any], relu: bool, threads: int) -> None:
    case = make_case(dtype=dtype, **shape)
    with ops.thread_limit(threads):
        y = case.run(relu=relu)
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_row_has_the_same_bits_wherever_it_is_computed(dtype: torch.dtype) -> None:
    case = make_case(700, 130, (40, 17), dtype=dtype)
    whole = case.run()
    for rows in (1, 5, 6, 97, 500):
        assert torch.equal(whole[:rows], Case(case.inputs, case.weights, case.bias, rows, 1).run())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_skipping_zeros_changes_no_bit(dtype: torch.dtype) -> None:
    """Blocks of 64 rows are dense or sparse by their own zeros; a few more zeros elsewhere in a
    block move it over the edge without touching the rows and columns that are compared."""
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
    tail = (20, 2, torch.float32, relu, drop, 3, None, False, 2)
    arguments = (tables, rows, [None, None], case.weights, case.bias, *tail)
    torch.library.opcheck(torch.ops.pyg_batchgnn.linear.default, arguments)
    y, mask = torch.ops.pyg_batchgnn.linear(*arguments)
    table = drawn_table(20, tables[0].size(1), seed=0)
    coded = ([table.codes, tables[1]], rows, [table.decoding, None], case.weights, case.bias, *tail)
    torch.library.opcheck(torch.ops.pyg_batchgnn.linear.default, coded)
    detached = [t.detach() for t in tables], rows, [None, None], [w.detach() for w in case.weights]
    backward = (torch.randn(y.shape), mask, 2.0, *detached, 2, True, [True, False], True, True, 2)
    torch.library.opcheck(torch.ops.pyg_batchgnn.linear_grads.default, backward)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("threads", [1, 4])
def test_memory_is_used_again(dtype: torch.dtype, threads: int) -> None:
    # Rows that are read in place and rows that are converted; threads that may begin too late for
    # any work.
    case = make_case(20000, 64, (32, 33), dtype=dtype, table_dtype=torch.float16)

    def step() -> None:
        with ops.thread_limit(threads):
            case.run(relu=True, drop=0.5).sum().backward()

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
        (([X], [W]), {"drop": 0.5, "node": torch.arange(3)}, ValueError, "3 entries for 4 rows"),
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


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("learned", [(), ("x",), ("weight",), ("x", "weight")])
@pytest.mark.parametrize("rows", [3, 5000])
def test_the_bias_learns_whatever_else_does(rows: int, learned: tuple[str, ...], relu: bool) -> None:
    draw = torch.Generator().manual_seed(0)
    x, weight = torch.randn(rows, 6, generator=draw), torch.randn(8, 6, generator=draw)
    grad, grads = torch.randn(rows, 8, generator=draw), []
    for product in (lambda *given: ops.linear([given[0]], [given[1]], given[2], relu=relu), F.linear):
        leaves = [one.clone() for one in (x, weight)]
        for name, leaf in zip(("x", "weight"), leaves, strict=True):
            leaf.requires_grad_(name in learned)
        bias = torch.zeros(8, requires_grad=True)
        out = product(*leaves, bias)
        (out.relu() if relu and product is F.linear else out).backward(grad)
        grads.append([None if one.grad is None else one.grad for one in (*leaves, bias)])
    for found, wanted in zip(*grads, strict=True):
        assert (found is None) == (wanted is None)
        assert found is None or torch.allclose(found, wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("drop", [0.1, 0.5, 1e-7, 0.9999])
def test_dropout_is_that_of_activate(drop: float, relu: bool, groups: int) -> None:
    case = make_case(40, 47, (9, 3), groups=groups, dtype=torch.float64)
    node = torch.randint(-(1 << 62), 1 << 62, (40,))
    key = ops.dropout_key(1, 2, 3, 4)
    ones = torch.ones(40, 47 * groups, dtype=torch.float64)
    factors = ops.activate(ones, drop=drop, key=key, node=node)
    y = case.run(relu=relu, drop=drop, key=key, node=node)
    before = case.reference()
    wanted = (before.relu() if relu else before) * factors
    assert distance(y, wanted) < 1e-13
    for found, expected in zip(gradients(y, case.leaves()), gradients(wanted, case.leaves()), strict=True):
        assert distance(found, expected) < 1e-13


def test_dropout_counts_rows_where_there_are_no_ids() -> None:
    case = make_case(100, 40, (8,))
    by_row = case.run(drop=0.5, key=9)
    assert torch.equal(by_row, case.run(drop=0.5, key=9, node=torch.arange(100)))
    assert not torch.equal(by_row == 0, case.run(drop=0.5, key=10) == 0)


LEVEL_TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-13, torch.bfloat16: 2**-7}
Answers = dict[str, tuple[list[Tensor], list[Tensor]]]

PROGRAM = """
import sys
import torch
from pyg_batchgnn import ops
from tests.support.linear_cases import View, gradients, make_case

torch.manual_seed(0)

answers, near = [], []
for dtype in (torch.float32, torch.float64, torch.bfloat16):
    for rows, outputs, columns, groups in ((200, 130, (33, 16), 1), (65, 47, (5,), 3), (1, 1, (1,), 1)):
        case = make_case(rows, outputs, columns, groups, dtype, table_dtype=torch.float16)
        case.inputs.append(View(torch.randn(37, 40 * groups).relu(), torch.randint(37, (rows,))))
        case.weights.append(torch.randn(outputs * groups, 40, dtype=dtype, requires_grad=True))
        for update in ({}, {"drop": 0.3, "key": 5}):
            y = case.run(**update)
            answers += [y.detach(), *gradients(y, case.leaves())]
    x = torch.randn(150, 90).relu().to(dtype).requires_grad_()
    weight = torch.randn(130, 90, dtype=dtype, requires_grad=True)
    d_x, d_weight = gradients(ops.linear([x], [weight], after_relu=True), [x, weight])
    near.append(d_x * (x != 0))
    answers.append(d_weight)
torch.save((answers, near), sys.argv[1])
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    folder = tmp_path_factory.mktemp("levels")

    def run(level: str) -> tuple[list[Tensor], list[Tensor]]:
        file = folder / f"answers-{level}.pt"
        run_at_level(level, PROGRAM, file)
        exact, near = torch.load(file)
        return exact, near

    return {level: run(level) for level in WIDTHS}


def test_avx2_and_avx512_give_the_same_bits(answers: Answers) -> None:
    for one, other in zip(answers[""][0], answers["avx2"][0], strict=True):
        if one.dtype is torch.bfloat16:  # multiplied in pairs where the processor does that
            assert distance(one, other) < 2**-7
        else:
            assert torch.equal(one, other)


def test_the_baseline_rounds_otherwise_and_drops_the_same(answers: Answers) -> None:
    for one, other in zip(answers[""][0], answers["baseline"][0], strict=True):
        assert distance(one, other) < LEVEL_TOLERANCE[one.dtype]
        if one.dtype is torch.float64:
            assert torch.equal(one == 0, other == 0)


@pytest.mark.parametrize("level", ["avx2", "baseline"])
def test_gradients_behind_a_relu_are_summed_in_as_many_parts_as_a_vector_has(
    level: str, answers: Answers
) -> None:
    for one, other in zip(answers[""][1], answers[level][1], strict=True):
        assert distance(one, other) < LEVEL_TOLERANCE[one.dtype]
        assert torch.equal(one == 0, other == 0)


# Dense layers whose inputs have many zeros: skipping those changes no bit, or where many rows go
# two by two only the last ones.


@dataclass(frozen=True)
class Zeros:
    """Returns a layer with a share of zeros in its first input; the second is a table's rows."""

    rows: int
    outputs: int
    columns: int
    share: float
    groups: int = 1
    second: float | None = None  # its share of zeros; None: there is no second input
    late: bool = False  # the first half of the rows has no zeros


CASES = [
    Zeros(rows=1, outputs=1, columns=3, share=0.5),
    Zeros(rows=300, outputs=70, columns=130, share=0.5),
    Zeros(rows=300, outputs=70, columns=130, share=0.9, second=0.1),
    Zeros(rows=300, outputs=256, columns=256, share=0.1, second=0.8),
    Zeros(rows=700, outputs=20, columns=33, share=0.6, groups=3, second=0.6),
    Zeros(rows=700, outputs=47, columns=100, share=1.0),
    Zeros(rows=700, outputs=64, columns=64, share=0.7, late=True),
    Zeros(rows=97, outputs=300, columns=20, share=0.4),
]


def make_inputs(case: Zeros, dtype: torch.dtype) -> tuple[list[Tensor], list[Tensor]]:
    generator = torch.Generator().manual_seed(3)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    def zeroed(share: float) -> Tensor:
        x = normal(case.rows, case.groups * case.columns)
        keep = torch.rand(x.shape, generator=generator) >= share
        if case.late:
            keep[: case.rows // 2] = True
        return torch.where(keep, x, torch.zeros_like(x))

    shares = [share for share in (case.share, case.second) if share is not None]
    weights = [normal(case.outputs * case.groups, case.columns) for _ in shares]
    return [zeroed(share) for share in shares], weights


def filled(x: Tensor, weight: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """Returns the same product without many zeros: each group has more columns, of ones."""
    more = 7 * weight.size(1)
    parts = [torch.cat([part, part.new_ones(x.size(0), more)], 1) for part in x.chunk(groups, 1)]
    return torch.cat(parts, 1), torch.cat([weight, weight.new_zeros(weight.size(0), more)], 1)


def run(
    inputs: list[Tensor], weights: list[Tensor], groups: int, threads: int | None = None, **options: Any
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    first = inputs[0].clone().requires_grad_()
    own = [weight.clone().requires_grad_() for weight in weights]
    rows = inputs[0].size(0)
    given = [first, *(View(x.flip(0).contiguous(), torch.arange(rows).flip(0)) for x in inputs[1:])]
    with ops.thread_limit(threads):
        y = ops.linear(given, own, groups=groups, **options)
    grad = 1 + torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with ops.thread_limit(threads):
        d_first, *d_weights = torch.autograd.grad(y, [first, *own], grad.to(y.dtype))
    return y.detach(), [d_first], d_weights


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("options", [{}, {"relu": True, "drop": 0.5, "key": 7}], ids=["plain", "update"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_same_bits_as_with_nothing_to_skip(case: Zeros, options: dict[str, Any], dtype: torch.dtype) -> None:
    inputs, weights = make_inputs(case, dtype)
    y, (d_input,), d_weights = run(inputs, weights, case.groups, threads=1, **options)
    for threads in (2, 3, 8):
        again, (d_again,), d_others = run(inputs, weights, case.groups, threads=threads, **options)
        assert all(map(torch.equal, (y, d_input, *d_weights), (again, d_again, *d_others)))
    more = [filled(x, weight, case.groups) for x, weight in zip(inputs, weights, strict=True)]
    wide_y, (wide_d_input,), wide_d_weights = run(
        [x for x, _ in more], [weight for _, weight in more], case.groups, **options
    )
    assert torch.equal(y, wide_y)
    wide_d_input = torch.cat([part[:, : case.columns] for part in wide_d_input.chunk(case.groups, 1)], 1)
    assert torch.equal(d_input, wide_d_input)
    for found, wide in zip(d_weights, wide_d_weights, strict=True):
        assert torch.equal(found, wide[:, : case.columns])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("outputs", [1, 17, 96, 300])
@pytest.mark.parametrize("rows", [1024, 1025, 1055, 1057, 1500])
def test_rows_two_by_two(rows: int, outputs: int, dtype: torch.dtype) -> None:
    """Odd numbers of rows, empty rows next to others, rows with nothing in common."""
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, 130, generator=generator, dtype=torch.float64).relu().to(dtype)
    x[1::6] = x[4::12] = x[5::12] = 0
    x[2::6, ::2] = x[3::6, 1::2] = 0
    weight = torch.randn(outputs, 130, generator=generator, dtype=torch.float64).to(dtype)
    y, *others = (run([x], [weight], 1, threads)[0] for threads in (1, 2, 3, 4))
    assert distance(y, x.double() @ weight.double().t()) < TOLERANCE[dtype]
    assert all(torch.equal(y, other) for other in others)


@pytest.mark.parametrize("columns", [1, 64, 65, 130, 256])
@pytest.mark.parametrize("outputs", [1, 17, 96, 300])
@pytest.mark.parametrize("second", [None, 0.0, 0.9])
def test_pairs_of_many_rows(outputs: int, columns: int, second: float | None) -> None:
    """In bfloat16: rows with no, one, an odd number and all of their elements."""
    inputs, weights = make_inputs(Zeros(1100, outputs, columns, 0.8, second=second), torch.bfloat16)
    inputs[0][7] = 0
    inputs[0][8, 1:] = 0
    inputs[0][9] = 1.5
    y, _, _ = run(inputs, weights, 1, threads=1)
    wanted = sum(x.double() @ w.double().t() for x, w in zip(inputs, weights, strict=True))
    assert distance(y, wanted) < TOLERANCE[torch.bfloat16]
    assert all(torch.equal(y, run(inputs, weights, 1, threads=threads)[0]) for threads in (2, 3, 4))
    reversed_ = run(inputs[::-1], weights[::-1], 1)[0]
    assert distance(reversed_, wanted) < TOLERANCE[torch.bfloat16]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_no_outputs_leave_gradients_of_zero(dtype: torch.dtype) -> None:
    before = torch.full((9, 8), 3.0).to(dtype).requires_grad_()
    ops.linear([before], [torch.ones(5, 8).to(dtype)]).sum().backward()  # leaves something in memory
    x = torch.randn(9, 8).to(dtype).requires_grad_()
    ops.linear([x], [torch.empty(0, 8, dtype=dtype)]).sum().backward()
    assert x.grad is not None and torch.equal(x.grad, torch.zeros_like(x))


@pytest.mark.parametrize(("rows", "dtype"), [(200, torch.float32), (1100, torch.bfloat16)])
@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_weights_that_are_not_finite_meet_zeros_as_in_torch(
    bad: float, rows: int, dtype: torch.dtype
) -> None:
    x = torch.nn.functional.dropout(torch.randn(rows, 64).relu(), 0.5).to(dtype)
    weight = torch.randn(70, 64).to(dtype)
    weight[5, 3] = bad
    y, wanted = ops.linear([x], [weight]), x @ weight.t()
    assert torch.equal(y.isnan(), wanted.isnan()) and torch.equal(y.isinf(), wanted.isinf())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_of_zeros_may_be_left_out(case: Zeros, dtype: torch.dtype) -> None:
    """Behind a ReLU, the gradients of other elements and of what it passes are the same."""
    inputs, weights = make_inputs(case, dtype)
    y, (d_input,), d_weights = run(inputs, weights, case.groups)
    gated_y, (after_relu,), gated_weights = run(inputs, weights, case.groups, after_relu=True, threads=3)
    assert torch.equal(y, gated_y)
    assert all(torch.equal(a, b) for a, b in zip(d_weights, gated_weights, strict=True))
    passed = inputs[0] != 0
    assert distance(after_relu * passed, d_input * passed) < TOLERANCE[dtype]


def test_gradients_of_zeros_are_left_out() -> None:
    x = torch.randn(300, 100).relu().requires_grad_()
    y = ops.linear([x], [torch.randn(70, 100, requires_grad=True)], after_relu=True)
    (d_x,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(d_x != 0, x != 0)
