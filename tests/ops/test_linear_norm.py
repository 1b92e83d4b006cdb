"""A linear layer and its normalisation in one pass: equality with two passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops.library import kernels
from tests.support.accuracy import distance
from tests.support.tiers import every_level

#: Largest error allowed, as a part of the reference's largest magnitude.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-11, torch.bfloat16: 4e-2}
SIZES = [(40, 6, 3), (65, 5, 7), (700, 20, 47), (3000, 100, 256), (1500, 130, 33), (9000, 33, 64)]


def example(
    rows: int, columns: int, outputs: int, dtype: torch.dtype, level: float = 0.0
) -> tuple[Tensor, list[Tensor], Tensor]:
    generator = torch.Generator().manual_seed(rows + columns)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    x = (normal(rows, columns) + level) * (0.5 + torch.arange(columns) % 3)
    parameters = [normal(outputs, columns), normal(outputs), normal(outputs) + 2, normal(outputs)]
    return x.to(dtype), [one.to(dtype) for one in parameters], normal(rows, outputs).to(dtype)


def results(
    x: Tensor, parameters: list[Tensor], grad: Tensor, threads: int | None = None, **options: Any
) -> list[Tensor]:
    leaves = [one.clone().requires_grad_() for one in parameters]
    wanted = [*leaves, x] if x.requires_grad else leaves
    with ops.thread_limit(threads):
        y, mean, variance = ops.linear_norm(x, *leaves, **options)
        return [y.detach(), mean, variance, *torch.autograd.grad(y, wanted, grad)]


def reference(x: Tensor, parameters: list[Tensor], grad: Tensor, mask: Tensor | None) -> list[Tensor]:
    leaves = [one.double().requires_grad_() for one in parameters]
    weight, bias, scale, shift = leaves
    wide = x.detach().double().requires_grad_()
    leaves += [wide] if x.requires_grad else []
    z = wide @ weight.t() + bias
    mean, variance = z.mean(0), z.var(0, unbiased=False)
    y = (z - mean) / (variance + 1e-5).sqrt() * scale + shift
    y = y if mask is None else y * mask
    found = torch.autograd.grad(y, leaves, grad.double())
    return [y.detach(), mean.detach(), variance.detach(), *found]


@every_level
@pytest.mark.parametrize("learns", [False, True], ids=["given", "learns"])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("level", [0.0, 3.0])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_equals_one_after_the_other(
    size: tuple[int, int, int], dtype: torch.dtype, level: float, relu: bool, learns: bool
) -> None:
    x, parameters, grad = example(*size, dtype, level)
    x.requires_grad_(learns)
    found = results(x, parameters, grad, relu=relu)
    wanted = reference(x, parameters, grad, found[0] > 0 if relu else None)
    d_bias = found.pop(4)
    assert float(d_bias.abs().max()) < TOLERANCE[dtype] * size[0] and float(wanted.pop(4).abs().max()) < 1e-9
    errors = [distance(a, b) for a, b in zip(found, wanted, strict=True)]
    assert max(errors) < TOLERANCE[dtype] * (1 + level), errors


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_bfloat16_and_tables_of_other_types(dtype: torch.dtype) -> None:
    x, parameters, grad = example(2000, 40, 96, torch.float32)
    given = x.to(dtype)
    compute = torch.float32 if dtype is torch.float16 else torch.bfloat16
    found = results(given, parameters, grad.to(compute), relu=True, out_dtype=compute)
    wanted = reference(given, parameters, grad.to(compute), found[0] > 0)
    assert found[0].dtype is compute
    errors = [distance(a, b) for a, b in zip(found, wanted, strict=True)]
    errors.pop(4)  # of the bias: nothing but rounding
    assert max(errors) < (1e-5 if compute is torch.float32 else 2e-2), errors


def test_behind_a_relu_gradients_of_zeros_are_left_out() -> None:
    x, parameters, grad = example(500, 20, 30, torch.float32)
    x = x.relu().requires_grad_()
    *same, d_x = results(x, parameters, grad, relu=True)
    *found, after_relu = results(x, parameters, grad, relu=True, after_relu=True)
    assert all(torch.equal(a, b) for a, b in zip(same, found, strict=True))
    assert not after_relu[x == 0].any() and distance(after_relu, (d_x * (x != 0)).double()) < 1e-6


def test_parameters_may_be_missing_and_rows_strided() -> None:
    x, (weight, *_), grad = example(500, 8, 16, torch.float32)
    own = weight.clone().requires_grad_()
    y, mean, _ = ops.linear_norm(x[:, ::2], own[:, ::2])
    ones, zeros = torch.ones(16), torch.zeros(16)
    wanted = reference(x[:, ::2], [weight[:, ::2], zeros, ones, zeros], grad, None)
    assert distance(y.detach(), wanted[0]) < 1e-5 and distance(mean, wanted[1]) < 1e-5
    (d_weight,) = torch.autograd.grad(y, own, grad)
    assert distance(d_weight[:, ::2], wanted[3]) < 1e-5 and not d_weight[:, 1::2].any()


class Stopped(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(_ctx: Any, _grad: Tensor) -> None:
        return None


@pytest.mark.parametrize("outputs", [8, 40])
def test_without_a_gradient_of_the_result_there_is_none(outputs: int) -> None:
    weight = torch.randn(outputs, 17, requires_grad=True)
    for found in (ops.linear_norm(torch.randn(700, 17), weight), ops.batch_norm(weight)):
        Stopped.apply(found[0]).sum().backward()
        assert weight.grad is None


def test_columns_that_do_not_vary() -> None:
    x = torch.full((300, 4), 3.0)
    y, mean, variance = ops.linear_norm(x, torch.ones(5, 4), shift=torch.arange(5.0))
    torch.testing.assert_close(y, torch.arange(5.0).expand(300, 5), rtol=0, atol=1e-3)
    assert not variance.any()
    assert torch.equal(mean, torch.full((5,), 12.0).double())


def test_what_is_not_a_number_stays_visible() -> None:
    x = torch.randn(200, 3)
    x[77, 1] = torch.nan
    assert ops.linear_norm(x, torch.randn(6, 3), relu=True)[0].isnan().all()
    assert kernels.linear_moments(x, None, torch.randn(5, 3), None, torch.float32, 1)[1].isnan().all()


@pytest.mark.parametrize("shape", [(0, 4, 3), (5, 4, 0)])
def test_empty(shape: tuple[int, int, int]) -> None:
    rows, columns, outputs = shape
    weight = torch.randn(outputs, columns, requires_grad=True)
    y, mean, variance = ops.linear_norm(torch.randn(rows, columns), weight)
    assert y.shape == (rows, outputs) and mean.shape == variance.shape == (outputs,)
    (d_weight,) = torch.autograd.grad(y.sum(), weight)
    assert d_weight.shape == weight.shape and d_weight.isfinite().all()


def test_opcheck() -> None:
    x, (weight, _, scale, shift), _ = example(50, 6, 9, torch.float32)
    grad, normed = torch.randn(50, 9), torch.randn(50, 9)
    mean, own = torch.zeros(9).double(), torch.ones(9).double()
    of_norm = (grad, normed, scale, shift, mean, own, 1e-5, True, True, True, 1)
    columns, _, _ = kernels.batch_norm_grads(*of_norm)
    for needed in (False, True):
        rest = (x, None, weight, False, needed, 1)
        torch.library.opcheck(kernels.linear_grads_normed, (grad, normed, columns, True, *rest))
    torch.library.opcheck(kernels.linear_moments, (x, None, weight, scale, torch.float32, 1))


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda x, w: ops.linear_norm(x.half().requires_grad_(), w), TypeError, ["float16", "gradient"]),
        (lambda x, w: ops.linear_norm(x, w[:, :2]), ValueError, ["3 columns", "[4, 2]"]),
        (lambda x, w: ops.linear_norm(x.double(), w), TypeError, ["float64"]),
        (lambda x, w: ops.linear_norm(x, w, scale=torch.ones(3)), ValueError, ["scale", "[4]", "[3]"]),
        (lambda x, w: ops.linear_norm(x, w, out_dtype=torch.float64), TypeError, ["float32", "float64"]),
        (lambda x, w: ops.linear_norm(x, w, out_dtype=torch.float16), TypeError, ["float16"]),
    ],
)
def test_refused(call: Callable[[Tensor, Tensor], Any], kind: type[Exception], words: list[str]) -> None:
    with pytest.raises(kind) as caught:
        call(torch.randn(5, 3), torch.randn(4, 3))
    assert all(word in str(caught.value) for word in words), caught.value


MOMENTS_TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}


def moments_example(
    rows: int, outputs: int, dtype: torch.dtype, columns: int = 20
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rows + outputs)
    shapes = (rows, columns), (outputs, columns), (outputs,)
    x, weight, bias = (torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes)
    return x, weight, bias


def check(x: Tensor, weight: Tensor, bias: Tensor | None, threads: int = 2) -> Tensor:
    """The product's bits are those without moments; the moments are those of the product."""
    y, mean, variance = kernels.linear_moments(x, None, weight, bias, weight.dtype, threads)
    assert torch.equal(y, ops.linear([x], [weight], bias))
    wide = y.double()
    deviation = wide.var(0, unbiased=False)
    tolerance = MOMENTS_TOLERANCE[weight.dtype]
    scale = deviation.sqrt() + tolerance * wide.abs().amax(0)
    assert ((mean - wide.mean(0)).abs() <= tolerance * scale).all()
    assert ((variance - deviation).abs() <= 10 * tolerance * scale.square()).all()
    return torch.stack((mean, variance))


@pytest.mark.parametrize("level", [1e2, 1e4, -1e6])
def test_means_far_from_zero_lose_no_digits(level: float) -> None:
    x, weight, bias = moments_example(1000, 33, torch.float32)
    check(x, weight, bias + level)


def test_means_that_drift_and_jump() -> None:
    x, weight, bias = moments_example(1000, 33, torch.float32)
    check(x + torch.arange(1000.0)[:, None], weight, bias)
    x[8:] += 1e4  # the first rows' mean is no centre of the block
    check(x, weight, bias)
