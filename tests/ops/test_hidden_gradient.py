"""Two normalised products one behind the other, whose gradients are made in one pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops.library import kernels

LEAVES = ("weight", "bias", "scale", "shift", "last", "last_bias")
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-11}


class Case:
    """Leaves of two layers [D, K] -> [D, H] -> [D, O]."""

    def __init__(self, rows: int, columns: int, hidden: int, outputs: int, dtype: torch.dtype) -> None:
        torch.manual_seed(rows + columns)
        self.x = torch.randn(rows, columns, dtype=dtype) + 0.5
        self.weight = torch.randn(hidden, columns, dtype=dtype)
        self.bias = torch.randn(hidden, dtype=dtype)
        self.scale = torch.rand(hidden, dtype=dtype) + 0.5
        self.shift = torch.randn(hidden, dtype=dtype) / 2
        self.last = torch.randn(outputs, hidden, dtype=dtype)
        self.last_bias = torch.randn(outputs, dtype=dtype)
        self.grad = torch.randn(rows, outputs, dtype=dtype)

    def gradients(
        self,
        fused: bool,
        threads: int = 2,
        use: Callable[[Tensor], Tensor] | None = None,
        on_read: bool = False,
    ) -> list[Tensor]:
        """Returns the gradients of all leaves; ``use``: another use of the rows in between."""
        leaves = [getattr(self, name).detach().clone().requires_grad_() for name in LEAVES]
        weight, bias, scale, shift, last, last_bias = leaves
        between, _, _, hidden = ops.linear_norm_hidden(self.x, weight, bias, scale, shift, threads=threads)
        assert hidden is not None
        layer = ops.linear_norm_on_read if on_read else ops.linear_norm
        options = {} if on_read else {"relu": True}
        y = layer(
            between,
            last,
            last_bias,
            after_relu=True,
            hidden=hidden if fused else None,
            threads=threads,
            **options,
        )[0]
        tensors, grads = [y], [self.grad]
        if use is not None:
            other = use(between)
            tensors.append(other)
            grads.append(torch.ones_like(other))
        torch.autograd.backward(tensors, grads)
        return [leaf.grad for leaf in leaves if leaf.grad is not None]


def assert_near(found: list[Tensor], wanted: list[Tensor]) -> None:
    assert len(found) == len(wanted) == len(LEAVES)
    for name, one, other in zip(LEAVES, found, wanted, strict=True):
        scale = float(other.abs().max())
        assert float((one - other).abs().max()) <= TOLERANCE[one.dtype] * scale, name


@pytest.mark.parametrize(
    ("dtype", "on_read"), [(torch.float32, False), (torch.float32, True), (torch.float64, False)]
)
@pytest.mark.parametrize(
    ("rows", "columns", "hidden", "outputs"),
    [
        (300, 100, 256, 256),
        (400, 64, 128, 96),
        (2, 1, 2, 1),
        (1300, 33, 70, 47),
        (65, 5, 130, 300),
        (641, 8, 16, 129),
    ],
)
def test_gradients_are_those_of_the_layers_apart(
    rows: int, columns: int, hidden: int, outputs: int, dtype: torch.dtype, on_read: bool
) -> None:
    case = Case(rows, columns, hidden, outputs, dtype)
    found, wanted = case.gradients(True, on_read=on_read), case.gradients(False, on_read=on_read)
    assert_near(found, wanted)


@pytest.mark.parametrize("shift", [-100.0, 0.0, 100.0])
def test_nothing_half_and_all_passes_between(shift: float) -> None:
    case = Case(700, 20, 64, 48, torch.float32)
    case.shift = torch.full_like(case.shift, shift)
    found, wanted = case.gradients(True), case.gradients(False)
    # Far from zero, the second layer subtracts means much larger than what is left.
    for one, other in zip(found, wanted, strict=True):
        assert float((one - other).abs().max()) <= 1e-4 * max(1.0, float(other.abs().max()))
    if shift < 0:
        assert all(not bool(found[at].any()) for at in (0, 2, 3))


def test_same_bits_on_any_number_of_threads() -> None:
    case = Case(5000, 40, 96, 80, torch.float32)
    first = case.gradients(True, threads=1)
    for threads in (2, 3, 4, 8, 16):
        for one, other in zip(first, case.gradients(True, threads=threads), strict=True):
            assert torch.equal(one, other)


def test_another_reader_of_the_rows_between_is_an_error() -> None:
    case = Case(500, 20, 64, 48, torch.float32)
    with pytest.raises(RuntimeError, match="another reader"):
        case.gradients(True, use=lambda rows: (rows * rows).sum(1))


@pytest.mark.parametrize("change", ["hook", "two products", "what an earlier pass has left"])
def test_gradients_that_would_be_lost_are_errors(change: str) -> None:
    case = Case(200, 10, 32, 24, torch.float32)
    weight, last = case.weight.clone().requires_grad_(), case.last.clone().requires_grad_()
    between, _, _, hidden = ops.linear_norm_hidden(case.x, weight)
    y, _, _ = ops.linear_norm(between, last, relu=True, after_relu=True, hidden=hidden)
    if change == "hook":
        between.register_hook(lambda grad: grad * 3)
    elif change == "two products":
        y = y + ops.linear_norm(between, last, after_relu=True, hidden=hidden)[0]
    else:
        torch.autograd.grad(y, [last], case.grad, retain_graph=True)
        y = between[:, :24] * 1
    with pytest.raises(RuntimeError, match="another reader"):
        torch.autograd.grad(y, [weight], case.grad)


def test_a_reader_that_was_not_told_gets_its_gradient() -> None:
    case = Case(500, 20, 64, 48, torch.float32)
    weight = case.weight.clone().requires_grad_()
    between, _, _, hidden = ops.linear_norm_hidden(case.x, weight)
    ops.linear_norm(between, case.last, after_relu=True, hidden=hidden)
    (found,) = torch.autograd.grad(between.square().sum(), weight)
    (wanted,) = torch.autograd.grad(ops.linear_norm(case.x, weight, relu=True)[0].square().sum(), weight)
    assert torch.equal(found, wanted)


def test_no_outputs_leave_zeros() -> None:
    case = Case(300, 8, 32, 1, torch.float32)
    weight, none = case.weight.clone().requires_grad_(), torch.zeros(0, 32, requires_grad=True)
    between, _, _, hidden = ops.linear_norm_hidden(case.x, weight)
    y, _, _ = ops.linear_norm(between, none, relu=True, after_relu=True, hidden=hidden)
    (found,) = torch.autograd.grad(y.sum(), weight)
    assert not bool(found.any())


def test_a_graph_may_be_gone_through_twice_and_in_part() -> None:
    case = Case(200, 10, 32, 24, torch.float32)
    weight, last = case.weight.clone().requires_grad_(), case.last.clone().requires_grad_()
    between, _, _, hidden = ops.linear_norm_hidden(case.x, weight)
    y, _, _ = ops.linear_norm(between, last, relu=True, after_relu=True, hidden=hidden)
    (alone,) = torch.autograd.grad(y, [last], case.grad, retain_graph=True)
    one = torch.autograd.grad(y, [weight, last], case.grad, retain_graph=True)
    two = torch.autograd.grad(y, [weight, last], case.grad)
    assert torch.equal(alone, one[1])
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_nothing_is_left_to_the_next_product_where_rows_learn_or_have_many_columns() -> None:
    x, weight = torch.randn(100, 10), torch.randn(32, 10)
    assert ops.linear_norm_hidden(x.clone().requires_grad_(), weight)[3] is None
    assert ops.linear_norm_hidden(torch.randn(100, 20), torch.randn(32, 20))[3] is None
    assert ops.linear_norm_hidden(x.bfloat16(), weight.bfloat16())[3] is None


def test_a_product_in_bfloat16_leaves_the_gradient_to_the_layer_before() -> None:
    case = Case(300, 10, 32, 24, torch.float32)
    found = []
    for fused in (True, False):
        weight = case.weight.clone().requires_grad_()
        between, _, _, hidden = ops.linear_norm_hidden(case.x, weight)
        options = {"relu": True, "after_relu": True, "hidden": hidden if fused else None}
        y, _, _ = ops.linear_norm(between, case.last.bfloat16(), **options)
        found.append(torch.autograd.grad(y, weight, case.grad.bfloat16())[0])
    assert torch.equal(*found) and bool(found[0].any())


def test_other_rows_and_products_that_are_not_after_a_relu_are_refused() -> None:
    case = Case(50, 10, 32, 24, torch.float32)
    between, _, _, hidden = ops.linear_norm_hidden(case.x, case.weight.requires_grad_())
    with pytest.raises(ValueError, match="got after_relu=False"):
        ops.linear_norm(between, case.last, hidden=hidden)
    with pytest.raises(ValueError, match="after_relu=True and 49 rows"):
        ops.linear_norm_on_read(between[:49], case.last, after_relu=True, hidden=hidden)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_opcheck(dtype: torch.dtype) -> None:
    rows, columns, hidden, outputs = 70, 5, 12, 9
    grad, normed = torch.randn(2, rows, outputs, dtype=dtype)
    arguments = (
        grad,
        normed,
        torch.rand(5, outputs, dtype=dtype),
        True,
        torch.randn(rows, hidden, dtype=dtype).relu(),
        torch.randn(outputs, hidden, dtype=dtype),
        torch.randn(rows, columns, dtype=dtype),
        torch.randn(columns, dtype=torch.float64),
        2,
    )
    torch.library.opcheck(kernels.linear_grads_before.default, arguments)
