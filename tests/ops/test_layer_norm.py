"""Layer normalisation with ReLU and dropout: against torch, in float64, and against `activate`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops.library import kernels
from tests.support.accuracy import distance
from tests.support.tiers import every_level

#: Largest error allowed, as a part of the reference's largest magnitude.
TOLERANCE = {torch.float32: 2e-6, torch.float64: 4e-15, torch.bfloat16: 2**-8}
SHAPES = [(1, 1), (3, 1), (5, 2), (4, 7), (257, 16), (6, 63), (65, 64), (33, 65)]
SHAPES += [(1000, 100), (2000, 256), (3, 5000)]
ENDINGS = [(False, 0.0), (True, 0.0), (False, 0.3), (True, 0.5)]


def example(rows: int, columns: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rows * 1000 + columns)
    x = torch.randn(rows, columns, generator=generator) * 3 + torch.arange(rows)[:, None] % 5
    weight = torch.rand(columns, generator=generator) + 0.5
    bias = torch.randn(columns, generator=generator)
    grad = torch.randn(rows, columns, generator=generator)
    parameter = torch.float64 if dtype is torch.float64 else torch.float32
    return x.to(dtype), weight.to(parameter), bias.to(parameter), grad.to(dtype)


def kept(rows: int, columns: int, drop: float, key: int, node: Tensor | None = None) -> Tensor:
    return ops.activate(torch.ones(rows, columns, dtype=torch.float64), drop=drop, key=key, node=node)


def reference(leaves: tuple[Tensor, ...], passes: Tensor, eps: float = 1e-5) -> Tensor:
    x, weight, bias = leaves
    return torch.nn.functional.layer_norm(x, x.shape[1:], weight, bias, eps) * passes


@every_level
@pytest.mark.parametrize(("relu", "drop"), ENDINGS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_values_and_gradients(rows: int, columns: int, dtype: torch.dtype, relu: bool, drop: float) -> None:
    """As torch in float64, with the elements passing that passed here."""
    x, weight, bias, grad = example(rows, columns, dtype)
    ours = tuple(one.clone().requires_grad_() for one in (x, weight, bias))
    wide = tuple(one.double().requires_grad_() for one in (x, weight, bias))
    out = ops.layer_norm(*ours, relu=relu, drop=drop, key=7)
    assert out.dtype is dtype and out.shape == x.shape
    out.backward(grad)
    passes = kept(rows, columns, drop, 7)
    if relu:
        passes = passes * (out != 0)
    wanted = reference(wide, passes)
    wanted.backward(grad.double())
    assert not relu or bool((out >= 0).all())
    assert distance(out.detach(), wanted.detach()) < TOLERANCE[dtype]
    for found, expected in zip(ours, wide, strict=True):
        assert found.grad is not None and expected.grad is not None and found.grad.dtype is found.dtype
        # The normalised values of two columns are opposite, and gradients cancel to almost nothing.
        if columns > 2 or found is ours[2]:
            assert distance(found.grad, expected.grad) < TOLERANCE[dtype]


@pytest.mark.parametrize("mean", [0.0, 100.0, 1e4])
@pytest.mark.parametrize("columns", [5, 64, 300])
def test_no_further_from_the_truth_than_torch(columns: int, mean: float) -> None:
    x, weight, bias, grad = example(800, columns, torch.float32)
    x = x + mean
    wide = tuple(one.double().requires_grad_() for one in (x, weight, bias))
    wanted = reference(wide, torch.ones(()))
    wanted.backward(grad.double())
    truth = (wanted.detach(), *(one.grad for one in wide))

    def errors(norm: Callable[..., Tensor]) -> list[float]:
        leaves = tuple(one.clone().requires_grad_() for one in (x, weight, bias))
        out = norm(*leaves)
        out.backward(grad)
        found = (out.detach(), *(one.grad for one in leaves))
        return [distance(one, other) for one, other in zip(found, truth, strict=True)]

    theirs = errors(lambda x, weight, bias: torch.nn.functional.layer_norm(x, (columns,), weight, bias))
    for ours, torchs in zip(errors(ops.layer_norm), theirs, strict=True):
        assert ours < 1.5 * torchs + 3e-7


@every_level
@pytest.mark.parametrize(("relu", "drop"), ENDINGS[1:])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("columns", [1, 6, 64, 130])
def test_what_follows_is_activate_to_the_bit(
    columns: int, dtype: torch.dtype, relu: bool, drop: float
) -> None:
    x, weight, bias, grad = example(70, columns, dtype)
    node = torch.randint(2**40, (80,))
    layer = ops.dropout_key(1, 2, 3, 4)
    found = ops.layer_norm(x, weight, bias, relu=relu, drop=drop, key=layer, node=node)
    plain = ops.layer_norm(x, weight, bias)
    assert torch.equal(found, ops.activate(plain, relu=relu, drop=drop, key=layer, node=node))
    by_number = ops.layer_norm(x, weight, bias, drop=0.5, key=3)
    assert torch.equal(by_number, ops.layer_norm(x, weight, bias, drop=0.5, key=3, node=torch.arange(70)))
    # A gradient passes where the value did.
    leaf = torch.zeros(columns, dtype=dtype, requires_grad=True)
    ops.layer_norm(x, weight, bias + leaf, relu=relu, drop=drop, key=layer, node=node).backward(grad)
    passes = kept(70, columns, drop, layer, node) * (found != 0 if relu else 1.0)
    assert leaf.grad is not None
    torch.testing.assert_close(leaf.grad.double(), (grad.double() * passes).sum(0), rtol=1e-5, atol=1e-4)


def test_a_rate_that_rounds_to_nothing_keeps_all() -> None:
    x = torch.randn(50, 30)
    assert torch.equal(ops.layer_norm(x, drop=1e-7, key=1), ops.layer_norm(x))


@pytest.mark.parametrize("absent", [(), ("weight",), ("bias",), ("weight", "bias")])
@pytest.mark.parametrize(("relu", "drop"), ENDINGS)
def test_gradcheck(relu: bool, drop: float, absent: tuple[str, ...]) -> None:
    generator = torch.Generator().manual_seed(1)
    shapes = {"x": (6, 5), "weight": (5,), "bias": (5,)}
    given = {
        name: torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
        for name, shape in shapes.items()
        if name not in absent
    }

    def call(*leaves: Tensor) -> Tensor:
        return ops.layer_norm(**dict(zip(given, leaves, strict=True)), eps=1e-3, relu=relu, drop=drop, key=2)

    assert torch.autograd.gradcheck(call, tuple(given.values()))


def test_there_are_no_second_derivatives() -> None:
    x = torch.randn(4, 5, requires_grad=True)
    (first,) = torch.autograd.grad(ops.layer_norm(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivatives"):
        first.sum().backward()


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_row_is_treated_alike_wherever_it_lies(dtype: torch.dtype) -> None:
    x, weight, bias, _ = example(41, 37, dtype)
    whole = ops.layer_norm(x, weight, bias)
    for row in (0, 3, 4, 38, 40):
        assert torch.equal(ops.layer_norm(x[row : row + 1], weight, bias), whole[row : row + 1])


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("value", [0.0, 3.0, -1.1e6, 3e30])
@pytest.mark.parametrize("columns", [1, 3, 100])
def test_equal_numbers_give_the_bias(columns: int, value: float, dtype: torch.dtype) -> None:
    x = torch.full((6, columns), value).to(dtype).requires_grad_()
    weight, bias = torch.rand(columns) + 1, torch.randn(columns)
    out = ops.layer_norm(x, weight, bias)
    assert torch.equal(out, bias.to(dtype).expand(6, -1))
    out.sum().backward()
    assert x.grad is not None and x.grad.isfinite().all()


def test_no_rows_and_no_columns() -> None:
    x, weight = torch.empty(0, 4, requires_grad=True), torch.ones(4, requires_grad=True)
    out = ops.layer_norm(x, weight, relu=True, drop=0.5)
    out.sum().backward()
    assert out.shape == (0, 4) and x.grad is not None and x.grad.shape == (0, 4)
    assert weight.grad is not None and weight.grad.tolist() == [0.0] * 4
    empty = torch.empty(5, 0, requires_grad=True)
    ops.layer_norm(empty, relu=True).sum().backward()
    assert empty.grad is not None and empty.grad.shape == (5, 0)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("at", [0, 5, 69])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_what_is_not_a_number_stays_in_its_row(dtype: torch.dtype, at: int, value: float) -> None:
    x, _, _, grad = example(9, 70, dtype)
    clean = ops.layer_norm(x, relu=True)
    x[4, at] = value
    leaf = x.requires_grad_()
    out = ops.layer_norm(leaf, relu=True)
    others = torch.arange(9) != 4
    theirs = torch.nn.functional.layer_norm(x, (70,)).relu()
    assert torch.equal(out.isnan(), theirs.isnan()) and out[4].isnan().all()
    assert torch.equal(out[others], clean[others])
    out.backward(grad)
    assert leaf.grad is not None and leaf.grad[4].isnan().all() and leaf.grad[others].isfinite().all()


def test_without_deviation_and_without_eps_nothing_is_a_number() -> None:
    x = torch.ones(2, 3)
    assert torch.nn.functional.layer_norm(x, (3,), eps=0.0).isnan().all()
    assert ops.layer_norm(x, eps=0.0).isnan().all()


def test_the_result_may_be_overwritten() -> None:
    x, grad = torch.randn(20, 12), torch.randn(20, 12)
    leaves = [x.clone().requires_grad_() for _ in range(2)]
    ops.layer_norm(leaves[0], relu=True).mul_(2).backward(grad)
    (ops.layer_norm(leaves[1], relu=True) * 2).backward(grad)
    assert leaves[0].grad is not None and leaves[1].grad is not None
    assert torch.equal(leaves[0].grad, leaves[1].grad)


@pytest.mark.parametrize(("relu", "drop"), [ENDINGS[0], ENDINGS[3]])
def test_opcheck(relu: bool, drop: float) -> None:
    x = torch.randn(6, 5, requires_grad=True)
    weight, bias = torch.rand(5, requires_grad=True), torch.rand(5, requires_grad=True)
    torch.library.opcheck(kernels.layer_norm, (x, weight, bias, 1e-5, relu, drop, 3, None, 1))
    _, norms, mask = kernels.layer_norm(x.detach(), None, None, 1e-5, relu, drop, 3, None, 1)
    torch.library.opcheck(
        kernels.layer_norm_grads, (torch.randn(6, 5), x.detach(), None, norms, mask, 1.0, 1)
    )
