"""Results and gradients have the same bits on any number of threads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops.library import kernels
from tests.support import linear_cases, reference_attention
from tests.support.aggregate_cases import graph

#: Computes something, and its gradients.
Run = Callable[[], Sequence[Tensor]]
DTYPES = (torch.float32, torch.bfloat16, torch.float64)


def with_gradients(call: Callable[..., Any], leaves: Sequence[Tensor]) -> list[Tensor]:
    """Returns the results of a call, and the gradients of the first of them."""
    found = call(*(one.requires_grad_() for one in leaves))
    out, *more = found if isinstance(found, tuple) else (found,)
    weights = torch.linspace(-1, 1, out.numel()).view_as(out).to(out.dtype)
    return [out.detach(), *more, *torch.autograd.grad(out, leaves, weights)]


def linear(dtype: torch.dtype) -> Run:
    case = linear_cases.make_case(5000, 65, (20, 33), dtype=dtype)

    def run() -> list[Tensor]:
        y = case.run(relu=True, drop=0.4, key=3)
        return [y, *linear_cases.gradients(y, case.leaves())]

    return run


def aggregate(reduce: str) -> Run:
    indptr, indices = graph(3000, 2500, 8)
    indptr[2000:] += 5000  # a hub
    indices = torch.cat([indices[: indptr[1999]], torch.zeros(5000).int(), indices[indptr[1999] :]])
    indptr, indices = indptr[:2401], indices[: indptr[2400]]  # targets are among the sources
    leaves = [torch.randn(2500, 100)]
    leaves += [] if reduce == "max" else [torch.rand(indices.numel()), torch.rand(1)]

    def call(x: Tensor, *weights: Tensor) -> Tensor:
        named = dict(zip(("edge_weight", "self_scale"), weights, strict=False))
        return ops.aggregate(x, indptr, indices, reduce=reduce, **named)

    return lambda: with_gradients(call, leaves)


def linear_norm(learns: bool) -> Run:
    x = torch.randn(20_000, 30)
    leaves = [torch.randn(70, 30), *torch.randn(3, 70).unbind()]
    if learns:
        return lambda: with_gradients(lambda *given: ops.linear_norm(*given, relu=True), [x, *leaves])
    return lambda: with_gradients(lambda *given: ops.linear_norm(x, *given, relu=True), leaves)


def linear_moments() -> Run:
    x, weight, bias = torch.randn(20_000, 20), torch.randn(33, 20), torch.randn(33)
    return lambda: kernels.linear_moments(x, None, weight, bias, torch.float32, torch.get_num_threads())


def attention(dtype: torch.dtype, by_target: bool, by_head: bool) -> Run:
    options: dict[str, Any] = {"by_target": by_target, "edge_columns": 3, "by_head": by_head}
    case = reference_attention.make_case(700, 900, 9000, 20, 4, 700, dtype=dtype, hub=True, **options)
    upstream = torch.randn(700, 92, generator=torch.Generator().manual_seed(1)).to(dtype)

    def run() -> list[Tensor]:
        found = case.run(drop=0.2, key=3)
        return [*found, *torch.autograd.grad(found.out, case.leaves, upstream)]

    return run


def norm(operator: Callable[..., Any], dtype: torch.dtype, **options: Any) -> Run:
    leaves = [torch.randn(9001, 70), torch.rand(70), torch.randn(70)]
    leaves[0] = leaves[0].to(dtype)
    leaves = [one.double() if dtype is torch.float64 else one for one in leaves]
    return lambda: with_gradients(lambda *given: operator(*given, relu=True, **options), leaves)


def activate(dtype: torch.dtype) -> Run:
    start, node = torch.randn(3000, 100).to(dtype), torch.randint(10**9, (3000,))
    return lambda: [ops.activate(start.clone(), relu=True, drop=0.4, key=5, node=node)]


CASES: dict[str, Callable[[], Run]] = {
    **{f"linear, {one}": lambda one=one: linear(one) for one in DTYPES},
    **{f"aggregate, {one}": lambda one=one: aggregate(one) for one in ("sum", "mean", "max")},
    **{f"linear norm, {one}": lambda one=one: linear_norm(one) for one in (False, True)},
    "linear moments": linear_moments,
    **{
        f"attention, {options}": lambda options=options: attention(*options)
        for options in itertools.product(DTYPES[:2], (False, True), (False, True))
    },
    **{f"batch norm, {one}": lambda one=one: norm(ops.batch_norm, one) for one in DTYPES},
    **{f"layer norm, {one}": lambda one=one: norm(ops.layer_norm, one, drop=0.3, key=4) for one in DTYPES},
    **{f"activate, {one}": lambda one=one: activate(one) for one in DTYPES},
}


@pytest.mark.parametrize("case", CASES)
def test_the_same_bits_on_any_number_of_threads(case: str) -> None:
    run = CASES[case]()
    results = []
    for threads in (1, 2, 3, 4, 8, 16):
        torch.set_num_threads(threads)
        with ops.thread_limit(threads):
            results.append(run())
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
