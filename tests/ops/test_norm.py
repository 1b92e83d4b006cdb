"""Batch normalisation: values and gradients against the formula in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops.library import kernels
from tests.support.accuracy import distance
from tests.support.tiers import every_level, examples

#: Largest error allowed, as a part of the reference's largest magnitude.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2**-8}


def reference(x: Tensor, weight: Tensor, bias: Tensor, relu: bool, eps: float = 1e-5) -> Tensor:
    out = (x - x.mean(0)) / (x.var(0, unbiased=False) + eps).sqrt() * weight + bias
    return out.relu() if relu else out


def example(rows: int, columns: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rows * 1000 + columns)
    x = torch.randn(rows, columns, generator=generator) * 3 + torch.arange(columns) % 5
    # Shifts that are no multiple of the scale keep results off zero, where ReLU's gradient jumps.
    weight = torch.rand(columns, generator=generator) + 0.5
    bias = torch.randn(columns, generator=generator)
    grad = torch.randn(rows, columns, generator=generator)
    return x.to(dtype), weight, bias, grad.to(dtype)


@every_level
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("rows", "columns"), [(2, 1), (3, 5), (63, 16), (64, 17), (65, 100), (1000, 33), (2000, 256), (40_000, 3)]
)
def test_values_and_gradients(rows: int, columns: int, dtype: torch.dtype, relu: bool) -> None:
    x, weight, bias, grad = example(rows, columns, dtype)
    leaves = [one.clone().requires_grad_() for one in (x, weight, bias)]
    wide = [one.double().requires_grad_() for one in (x, weight, bias)]
    out, mean, variance = ops.batch_norm(*leaves, relu=relu)
    assert out.dtype is dtype and mean.dtype is variance.dtype is torch.float64
    out.backward(grad)
    wanted = reference(*wide, relu)
    wanted.backward(grad.double())
    assert distance(out, wanted) <= TOLERANCE[dtype]
    assert distance(mean, wide[0].mean(0)) <= 1e-6
    assert distance(variance, wide[0].var(0, unbiased=False)) <= 1e-6
    for found, expected in zip(leaves, wide, strict=True):
        assert found.grad is not None and expected.grad is not None and found.grad.dtype is found.dtype
        # Two rows have opposite normalised values and a gradient that cancels to almost nothing.
        if rows > 2 or found is not leaves[0]:
            assert distance(found.grad, expected.grad) <= max(TOLERANCE[dtype], 1e-6)


@pytest.mark.parametrize("relu", [False, True])
def test_given_statistics_are_constants(relu: bool) -> None:
    x, weight, bias, grad = example(300, 20, torch.float32)
    mean, variance = torch.randn(20), torch.rand(20) + 0.1
    leaves = [one.clone().requires_grad_() for one in (x, weight, bias)]
    ours = [one.clone().requires_grad_() for one in (x, weight, bias)]
    wanted = torch.nn.functional.batch_norm(leaves[0], mean, variance, leaves[1], leaves[2])
    (wanted.relu() if relu else wanted).backward(grad)
    out, same_mean, same_variance = ops.batch_norm(*ours, mean, variance, relu=relu)
    out.backward(grad)
    assert torch.equal(same_mean, mean.double()) and torch.equal(same_variance, variance.double())
    for found, expected in zip(ours, leaves, strict=True):
        assert found.grad is not None and expected.grad is not None
        assert distance(found.grad, expected.grad) <= 1e-5


@pytest.mark.parametrize("mean", [1e4, -1e6])
@pytest.mark.parametrize("order", ["random", "ascending", "outlier first"])
def test_a_mean_far_above_the_deviation_costs_no_digits(mean: float, order: str) -> None:
    x = torch.randn(5000, 9, generator=torch.Generator().manual_seed(0)) + mean
    if order == "ascending":
        x = x.sort(0).values
    if order == "outlier first":
        x[0] = 0.0
    wide = x.double()
    out, found_mean, found_variance = ops.batch_norm(x)
    assert float(((found_mean - wide.mean(0)) / wide.std(0)).abs().max()) < 1e-6
    assert distance(found_variance, wide.var(0, unbiased=False)) <= 3e-6
    assert distance(out, reference(wide, torch.ones(9), torch.zeros(9), False)) <= 1e-6


@examples(40)
@given(
    rows=st.integers(1, 400),
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
    level=st.sampled_from([0.0, 1.0, 1e3]),
    drift=st.sampled_from([0.0, 10.0, 1e5]),
    seed=st.integers(0, 10**6),
)
def test_moments_of_any_column(rows: int, scale: float, level: float, drift: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 4, generator=generator)
    x = (x + level + drift * (torch.arange(rows) // 64)[:, None]) * scale
    _, mean, variance = ops.batch_norm(x)
    wide = x.double()
    torch.testing.assert_close(mean, wide.mean(0), rtol=0, atol=1e-6 * float(wide.abs().max()))
    # Means of blocks of rows are rounded to float32, which shifts the deviations from them. A
    # constant column has a deviation of zero, its computed mean an error of one rounding.
    exact = wide.var(0, unbiased=False)
    allowed = 3e-6 * exact + 2.0**-23 * wide.abs().amax(0) * exact.sqrt() + 1e-30
    assert bool(((variance - exact).abs() <= allowed).all())


@pytest.mark.parametrize("statistics", [False, True])
def test_opcheck(statistics: bool) -> None:
    x = torch.randn(6, 5, requires_grad=True)
    weight, bias = torch.rand(5, requires_grad=True), torch.rand(5, requires_grad=True)
    given_pair = (torch.zeros(5), torch.ones(5)) if statistics else (None, None)
    torch.library.opcheck(kernels.batch_norm, (x, weight, bias, *given_pair, 1e-5, True, 1))
    constants = (torch.zeros(5, dtype=torch.float64), torch.ones(5, dtype=torch.float64))
    arguments = (torch.randn(6, 5), x.detach(), weight.detach(), None, *constants, 1e-5, True, statistics)
    for as_columns in (False, True):
        torch.library.opcheck(kernels.batch_norm_grads, (*arguments, as_columns, 1))


def test_no_rows_and_no_columns() -> None:
    weight = torch.ones(4, requires_grad=True)
    x = torch.empty(0, 4, requires_grad=True)
    out, mean, variance = ops.batch_norm(x, weight)
    out.sum().backward()
    assert out.shape == (0, 4) and mean.tolist() == variance.tolist() == [0.0] * 4
    assert weight.grad is not None and weight.grad.tolist() == [0.0] * 4
    assert ops.batch_norm(torch.empty(5, 0))[0].shape == (5, 0)


def test_what_is_not_a_number_stays_visible() -> None:
    x = torch.randn(200, 3)
    x[77, 1] = torch.nan
    out, _, _ = ops.batch_norm(x, relu=True)
    assert out[:, 1].isnan().all() and out[:, [0, 2]].isfinite().all()


NORMS: dict[str, Callable[..., Tensor]] = {
    "batch": lambda *arguments: ops.batch_norm(*arguments)[0],
    "layer": ops.layer_norm,
}


@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
def test_views_and_expanded_gradients(norm: Callable[..., Tensor]) -> None:
    x = torch.randn(50, 8).t().requires_grad_()
    out = norm(x, torch.arange(50.0))
    out[:, :1].expand(-1, 50).sum().backward()
    assert torch.equal(out, norm(x.detach().contiguous(), torch.arange(50.0)))
    assert x.grad is not None and x.grad.isfinite().all()


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (([1.0],), TypeError, ["x", "list"]),
        ((torch.ones(3),), ValueError, ["two dimensions", "[3]"]),
        ((torch.ones(3, 2, dtype=torch.float16),), TypeError, ["float16", ".float()"]),
        ((torch.ones(3, 2, device="meta"),), ValueError, ["meta"]),
        ((torch.ones(3, 2), torch.ones(3)), ValueError, ["weight", "[2]", "[3]"]),
        ((torch.ones(3, 2), None, torch.ones(2).long()), TypeError, ["bias", "int64"]),
    ],
)
@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
def test_refused(
    norm: Callable[..., Tensor], given: tuple[Any, ...], error: type[Exception], words: list[str]
) -> None:
    with pytest.raises(error) as caught:
        norm(*given)
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_mean_without_a_variance_is_refused() -> None:
    with pytest.raises(ValueError, match="variance is None"):
        ops.batch_norm(torch.ones(3, 2), mean=torch.ones(2))
