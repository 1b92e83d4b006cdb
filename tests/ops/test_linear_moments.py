"""Mean and variance of a product's columns, taken with the product or afterwards."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops.library import kernels
from tests.support.simd_levels import run_at_level

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}
# Rows are taken in blocks of 96 and the first 8 of each are their centre; vectors have 4 to 16
# columns.
ROWS = [1, 2, 7, 8, 9, 95, 96, 97, 101, 1000]
OUTPUTS = [1, 15, 64, 65, 130]


def example(rows: int, outputs: int, dtype: torch.dtype, columns: int = 20) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rows + outputs)
    shapes = (rows, columns), (outputs, columns), (outputs,)
    x, weight, bias = (torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes)
    return x, weight, bias


def check(x: Tensor, weight: Tensor, bias: Tensor | None, threads: int = 2) -> Tensor:
    """The product's bits are those without moments; the moments are those of the product.

    Returns them.
    """
    y, mean, variance = kernels.linear_moments(x, weight, bias, weight.dtype, threads)
    assert torch.equal(y, ops.linear([x], [weight], bias))
    wide = y.double()
    deviation = wide.var(0, unbiased=False)
    tolerance = TOLERANCE[weight.dtype]
    scale = deviation.sqrt() + tolerance * wide.abs().amax(0)
    assert ((mean - wide.mean(0)).abs() <= tolerance * scale).all()
    assert ((variance - deviation).abs() <= 10 * tolerance * scale.square()).all()
    return torch.stack((mean, variance))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("outputs", OUTPUTS)
@pytest.mark.parametrize("rows", ROWS)
def test_equals_the_moments_of_the_product(rows: int, outputs: int, dtype: torch.dtype) -> None:
    x, weight, bias = example(rows, outputs, dtype)
    check(x, weight, bias)
    check(x, weight, None)


@pytest.mark.parametrize("rows", [9, 96, 500])
def test_products_that_skip_zeros(rows: int) -> None:
    x, weight, bias = example(rows, 70, torch.float32, columns=256)
    check(x.relu(), weight, bias)
    x[:100].relu_()  # some blocks skip, others do not
    check(x, weight, bias)


@pytest.mark.parametrize("level", [1e2, 1e4, -1e6])
def test_means_far_from_zero_lose_no_digits(level: float) -> None:
    x, weight, bias = example(1000, 33, torch.float32)
    check(x, weight, bias + level)


def test_means_that_drift_and_jump() -> None:
    x, weight, bias = example(1000, 33, torch.float32)
    check(x + torch.arange(1000.0)[:, None], weight, bias)
    x[8:] += 1e4  # the first rows' mean is no centre of the block
    check(x, weight, bias)


@pytest.mark.parametrize("level", [0.0, 0.1, 12345.678])
def test_columns_that_do_not_vary(level: float) -> None:
    x, weight, bias = example(1, 33, torch.float32)
    mean, variance = check(x.expand(500, 20).contiguous(), weight, bias + level)
    assert not variance.any()
    assert torch.equal(mean, ops.linear([x], [weight], bias + level)[0].double())


def test_same_bits_on_any_number_of_threads() -> None:
    x, weight, bias = example(20_000, 33, torch.float32)
    one = check(x, weight, bias, 1)
    assert all(torch.equal(one, check(x, weight, bias, threads)) for threads in (2, 3, 8, 16))


def test_empty_and_no_columns() -> None:
    y, mean, variance = kernels.linear_moments(torch.ones(0, 3), torch.ones(5, 3), None, torch.float32, 2)
    assert y.shape == (0, 5) and not mean.any() and not variance.any()
    y, mean, variance = kernels.linear_moments(
        torch.ones(200, 0), torch.ones(5, 0), torch.arange(5.0), torch.float32, 2
    )
    assert torch.equal(y, torch.arange(5.0).expand(200, 5))
    assert torch.equal(mean, torch.arange(5.0).double()) and not variance.any()


def test_what_is_not_a_number_stays_visible() -> None:
    x, weight, bias = example(300, 5, torch.float32)
    x[200, 3] = torch.nan
    assert kernels.linear_moments(x, weight, bias, torch.float32, 1)[1].isnan().all()


def test_opcheck() -> None:
    x, weight, bias = example(50, 9, torch.float32)
    torch.library.opcheck(kernels.linear_moments, (x, weight, bias, torch.float32, 1))


PROGRAM = """
import torch
from tests.ops.test_linear_moments import OUTPUTS, ROWS, TOLERANCE, check, example

for dtype in TOLERANCE:
    for rows in ROWS:
        for outputs in OUTPUTS:
            x, weight, bias = example(rows, outputs, dtype)
            check(x, weight, bias)
            check(x.relu(), weight, bias + 100)
"""


@pytest.mark.parametrize("level", ["avx2", "baseline"])
def test_every_level(level: str) -> None:
    run_at_level(level, PROGRAM)
