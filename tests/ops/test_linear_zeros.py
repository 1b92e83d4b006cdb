"""Dense layers whose inputs have many zeros: skipping those changes no bit, or where many rows go
two by two only the last ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from pyg_batchgnn import ops
from tests.support.linear_cases import TOLERANCE, View, distance


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
    """[rows, groups * columns] each, and weights."""
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
    inputs: list[Tensor], weights: list[Tensor], groups: int, **options: Any
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """The result, and the gradients of the first input and of all weights.

    The second input is a view.
    """
    first = inputs[0].clone().requires_grad_()
    own = [weight.clone().requires_grad_() for weight in weights]
    rows = inputs[0].size(0)
    given = [first, *(View(x.flip(0).contiguous(), torch.arange(rows).flip(0)) for x in inputs[1:])]
    y = ops.linear(given, own, groups=groups, **options)
    grad = 1 + torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    d_first, *d_weights = torch.autograd.grad(y, [first, *own], grad.to(y.dtype))
    return y.detach(), [d_first], d_weights


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("options", [{}, {"relu": True, "drop": 0.5, "key": 7}], ids=["plain", "update"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_same_bits_as_with_nothing_to_skip(case: Zeros, options: dict[str, Any], dtype: torch.dtype) -> None:
    inputs, weights = make_inputs(case, dtype)
    y, (d_input,), d_weights = run(inputs, weights, case.groups, **options)
    more = [filled(x, weight, case.groups) for x, weight in zip(inputs, weights, strict=True)]
    wide_y, (wide_d_input,), wide_d_weights = run(
        [x for x, _ in more], [weight for _, weight in more], case.groups, **options
    )
    assert torch.equal(y, wide_y)
    wide_d_input = torch.cat([part[:, : case.columns] for part in wide_d_input.chunk(case.groups, 1)], 1)
    assert torch.equal(d_input, wide_d_input)
    for found, wide in zip(d_weights, wide_d_weights, strict=True):
        assert torch.equal(found, wide[:, : case.columns])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_torch(case: Zeros, dtype: torch.dtype) -> None:
    inputs, weights = make_inputs(case, dtype)
    y, _, d_weights = run(inputs, weights, case.groups, threads=2)
    wide = [weight.double().requires_grad_() for weight in weights]
    wanted = sum(
        torch.cat(
            [a @ b.t() for a, b in zip(x.double().chunk(case.groups, 1), w.chunk(case.groups), strict=True)],
            1,
        )
        for x, w in zip(inputs, wide, strict=True)
    )
    grad = 1 + torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert distance(y, wanted) < TOLERANCE[dtype]
    for found, expected in zip(
        d_weights, torch.autograd.grad(wanted, wide, grad.to(dtype).double()), strict=True
    ):
        assert distance(found, expected) < TOLERANCE[dtype]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_same_bits_on_any_number_of_threads(case: Zeros) -> None:
    inputs, weights = make_inputs(case, torch.float32)
    one = run(inputs, weights, case.groups, threads=1)
    for threads in (2, 3, 4, 8, 16):
        other = run(inputs, weights, case.groups, threads=threads)
        assert torch.equal(one[0], other[0])
        for a, b in zip([*one[1], *one[2]], [*other[1], *other[2]], strict=True):
            assert torch.equal(a, b)


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
    y = ops.linear([x], [weight], threads=1)
    assert distance(y, x.double() @ weight.double().t()) < TOLERANCE[dtype]
    assert all(torch.equal(y, ops.linear([x], [weight], threads=threads)) for threads in (2, 3, 4))


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
