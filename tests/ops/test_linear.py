"""Dense layers: equality with torch, bits that do not depend on how they are computed, refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pyg_batchgnn import ops
from tests.support.linear_cases import SHAPES, TOLERANCE, Case, View, distance, gradients, make_case
from tests.support.tiers import examples


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(shape=SHAPES, relu=st.booleans(), threads=st.integers(1, 3))
@examples(40)
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
