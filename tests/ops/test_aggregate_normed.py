"""Sums over rows normalised where they are read, beside the sums over rows that were written."""

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
from tests.support.aggregate_cases import graph
from tests.support.simd_levels import WIDTHS, run_at_level
from tests.support.tiers import fixed

COLUMNS = (1, 3, 7, 16, 17, 33, 100, 104, 105, 256, 300)


class Case:
    """A product of ``sources`` rows and the graph that reads them; both paths of its gradients."""

    def __init__(self, columns: int, targets: int = 40, sources: int = 50, degree: int = 6, seed: int = 0):
        generator = torch.Generator().manual_seed(seed)
        self.indptr, self.indices = graph(targets, sources, degree, seed)
        self.own = torch.tensor([1.3])

        def leaf(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator).requires_grad_()

        self.leaves = [leaf(sources, 20), leaf(columns, 20), leaf(columns), leaf(columns), leaf(columns)]

    def written(self, threads: int = 1, **options: Any) -> Tensor:
        x, weight, bias, scale, shift = self.leaves
        y, _, _ = ops.linear_norm(x, weight, bias, scale, shift, relu=True, threads=threads)
        return ops.aggregate(y, self.indptr, self.indices, self_scale=self.own, threads=threads, **options)

    def on_read(self, threads: int = 1, tell: bool = False, **options: Any) -> Tensor:
        """Runs the operator; with ``tell`` the gradient's sums are taken where it is written."""
        product, columns, _, _, sums = ops.linear_norm_on_read(*self.leaves, threads=threads)
        return ops.aggregate_normed(
            product,
            columns,
            self.indptr,
            self.indices,
            self_scale=self.own,
            sums=sums if tell else None,
            threads=threads,
            **options,
        )

    def with_gradients(self, out: Tensor) -> list[Tensor]:
        weights = torch.linspace(-1.0, 1.0, out.numel()).view_as(out)
        return [out.detach(), *torch.autograd.grad((out * weights).sum(), self.leaves)]


def assert_same(found: list[Tensor], wanted: list[Tensor]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other)


def assert_near(found: list[Tensor], wanted: list[Tensor]) -> None:
    """Compares to a part of the largest gradient: the product's bias has only rounding."""
    scale = max(float(grad.abs().max()) for grad in wanted if grad.numel())
    for one, other in zip(found, wanted, strict=True):
        assert float((one - other).abs().max()) <= 2e-6 * scale if one.numel() else True


@fixed(60)
@given(
    columns=st.sampled_from(COLUMNS),
    targets=st.integers(0, 60),
    extra=st.integers(0, 20),
    degree=st.sampled_from([0, 1, 5, 60]),
    out_dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    seed=st.integers(0, 1000),
)
def test_same_bits_as_rows_that_were_written(
    columns: int, targets: int, extra: int, degree: int, out_dtype: torch.dtype, seed: int
) -> None:
    case = Case(columns, targets, targets + extra + 2, degree, seed)
    found, wanted = case.on_read(out_dtype=out_dtype), case.written(out_dtype=out_dtype)
    assert found.dtype is out_dtype
    written = case.with_gradients(wanted)
    assert_same(case.with_gradients(found), written)
    assert_near(case.with_gradients(case.on_read(out_dtype=out_dtype, tell=True)), written)


@pytest.mark.parametrize("tell", [False, True])
@pytest.mark.parametrize("threads", [2, 3, 4, 8, 16])
def test_same_bits_on_any_number_of_threads(threads: int, tell: bool) -> None:
    case = Case(33, targets=2000, sources=3000)
    assert_same(case.with_gradients(case.on_read(threads, tell)), case.with_gradients(case.on_read(1, tell)))


def test_a_hub_is_read_in_pieces() -> None:
    case = Case(100, targets=3, sources=5000)
    case.indptr, case.indices = torch.tensor([0, 2, 9002, 9002]), torch.randint(5000, (9002,)).int()
    assert_same(case.with_gradients(case.on_read(4)), case.with_gradients(case.written(4)))


@pytest.mark.parametrize("columns", COLUMNS)
def test_sums_of_a_gradient_are_taken_while_it_is_written(columns: int) -> None:
    """Sources 1 and 7 are hubs of the gradient, the last rows have no edge."""
    targets = 5000
    indptr = torch.arange(0, 3 * targets + 1, 3)
    others = torch.randint(2500, (targets,))
    indices = torch.stack([torch.full_like(others, 1), torch.full_like(others, 7), others], 1).view(-1)
    ptr, by_source, _ = ops.transpose(indptr, indices, 3000)
    grad, x = torch.randn(targets, columns), torch.randn(3000, columns)
    x[7], own = float("nan"), torch.tensor([0.7])
    center, scale, shift = by = torch.randn(3, columns)
    found, sums = kernels.aggregate_normed_grads(grad, ptr, by_source, own, x, by, 3)
    wanted = torch.zeros(3000, columns).index_add_(0, indices, grad.repeat_interleave(3, 0))
    wanted += 0.7 * grad[:3000]
    assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-3)
    centered = (x - center).double()
    passed = found.double().masked_fill((x - center) * scale + shift <= 0, 0.0)
    assert torch.allclose(sums[0], passed.sum(0), rtol=1e-5, atol=1e-2)
    assert bool(sums[1].isnan().all())
    x[7] = 0.5
    _, sums = kernels.aggregate_normed_grads(grad, ptr, by_source, own, x, by, 1)
    centered = (x - center).double()
    passed = found.double().masked_fill((x - center) * scale + shift <= 0, 0.0)
    assert torch.allclose(sums[1], (passed * centered).sum(0), rtol=1e-5, atol=1e-2)


def test_sums_are_for_the_gradient_as_it_was_written() -> None:
    grad, sums = torch.ones(1, 3), torch.ones(2, 3, dtype=torch.float64)
    place = ops.GradientSums()
    assert place.take(grad) is None
    place.leave(grad, sums)
    assert place.take(grad) is sums and place.take(grad) is None
    place.leave(grad, sums)
    assert place.take(grad.clone()) is None
    place.leave(grad, sums)
    grad.mul_(2)
    assert place.take(grad) is None


@pytest.mark.parametrize("change", [None, lambda grad: grad * 2, lambda grad: grad.mul_(2)])
def test_a_hook_that_changes_the_gradient_is_heeded(
    change: Callable[[Tensor], Tensor] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    real = ops.GradientSums.take

    def spy(self: ops.GradientSums, grad: Tensor) -> Tensor | None:
        taken.append(real(self, grad))
        return taken[-1]

    monkeypatch.setattr(ops.GradientSums, "take", spy)
    case, factor = Case(16), 1.0 if change is None else 2.0
    product, columns, _, _, sums = ops.linear_norm_on_read(*case.leaves)
    if change is not None:
        product.register_hook(change)
    out = ops.aggregate_normed(product, columns, case.indptr, case.indices, self_scale=case.own, sums=sums)
    grads = case.with_gradients(out)[1:]
    assert (taken[0] is not None) == (change is None)
    assert_near(grads, [factor * grad for grad in case.with_gradients(case.written())[1:]])


def test_without_parameters_and_with_a_scale_for_each() -> None:
    x, weight = torch.randn(30, 8, requires_grad=True), torch.randn(5, 8)
    indptr, indices = graph(20, 30, 4)
    own = torch.linspace(-1.0, 2.0, 20)
    product, columns, mean, variance, _ = ops.linear_norm_on_read(x, weight)
    y, *statistics = ops.linear_norm(x, weight, relu=True)
    assert_same([mean, variance], statistics)
    found = ops.aggregate_normed(product, columns, indptr, indices, self_scale=own)
    assert torch.equal(found, ops.aggregate(y, indptr, indices, self_scale=own))


def test_a_nan_stays_visible() -> None:
    product = torch.full((2, 20), float("nan"))
    columns = torch.ones(3, 20)
    found = ops.aggregate_normed(
        product, columns, torch.tensor([0, 1]), torch.tensor([1]), self_scale=torch.ones(1)
    )
    assert bool(found.isnan().all())


PROGRAM = """
from tests.ops.test_aggregate_normed import COLUMNS, Case, assert_near, assert_same
from pyg_batchgnn import ops

for columns in COLUMNS:
    case = Case(columns, targets=200, sources=300)
    written = case.with_gradients(case.written())
    assert_same(case.with_gradients(case.on_read()), written)
    assert_near(case.with_gradients(case.on_read(tell=True)), written)
print(ops.simd_level())
"""


@pytest.mark.parametrize("level", ["avx2", "baseline"])
def test_every_level_of_instructions(level: str) -> None:
    (bits,) = run_at_level(level, PROGRAM)
    assert int(bits) in WIDTHS[level]


def test_opcheck() -> None:
    indptr, indices = torch.tensor([0, 2, 4]), torch.tensor([1, 2, 3, 8], dtype=torch.int32)
    x, columns, own = torch.randn(9, 5), torch.rand(3, 5), torch.ones(1)
    torch.library.opcheck(kernels.aggregate_normed, (x, columns, indptr, indices, own, 2, torch.float32, 1))
    column = torch.rand(5, dtype=torch.float64)
    grad, (ptr, targets, _) = torch.randn(2, 5), ops.transpose(indptr, indices, 9)
    torch.library.opcheck(kernels.aggregate_normed_grads, (grad, ptr, targets, own, x, columns, 1))
    torch.library.opcheck(kernels.batch_norm_columns, (torch.rand(5), None, column, column, 1e-5))


INDPTR, INDICES, OWN = torch.tensor([0, 1]), torch.tensor([0]), torch.ones(1)
X, BY = torch.ones(1, 2), torch.ones(3, 2)


def read(x: Tensor = X, by: Tensor = BY, own: Tensor = OWN, **options: Any) -> Tensor:
    return ops.aggregate_normed(x, by, INDPTR, INDICES, self_scale=own, **options)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: read(X[0]), ValueError, "rows, columns"),
        (lambda: read(X.double()), TypeError, "float64"),
        (lambda: read(X.bfloat16()), TypeError, "bfloat16"),
        (lambda: read(out_dtype=torch.float64), TypeError, "float64"),
        (lambda: read(by=BY[:2]), ValueError, r"\[3, 2\]"),
        (lambda: read(by=BY.double()), ValueError, "float64"),
        (lambda: read(own=torch.ones(3)), ValueError, "self_scale"),
        (lambda: read(own=OWN.clone().requires_grad_()), ValueError, "self_scale"),
        (lambda: read(by_source=ops.transpose(INDPTR, INDICES, 3)), ValueError, r"by_source is of 3 sources"),
        (lambda: ops.linear_norm_on_read(X, X.double()), TypeError, "float64"),
        (lambda: ops.linear_norm_on_read(X, X, scale=X[0]), ValueError, "scale"),
    ],
)
def test_refused(call: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()
