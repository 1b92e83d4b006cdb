"""`ops.first_rows` and the rows that `ops.aggregate_with_targets` leaves to the next relation."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from pyg_batchgnn import ops


@pytest.mark.parametrize("rows", [0, 2, 5])
def test_first_rows_are_a_view_with_a_gradient(rows: int) -> None:
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    found = ops.first_rows(x, rows)
    assert torch.equal(found, x[:rows]) and (rows == 0 or found.data_ptr() == x.data_ptr())
    weights = torch.randn(rows, 3, dtype=torch.float64)
    (grad,) = torch.autograd.grad((found * weights).sum(), [x])
    assert torch.equal(grad[:rows], weights) and not grad[rows:].any()


def test_a_gradient_of_first_rows_is_added_to_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks: list[int] = []

    def recorded(*arguments: Any) -> Tensor:
        out = ops.empty(*arguments)
        blocks.append(out.data_ptr())
        return out

    monkeypatch.setattr(sys.modules[ops.first_rows.__module__], "empty", recorded)
    leaf = torch.randn(5, 3, requires_grad=True)
    x, sums = leaf * 1, []
    x.register_hook(lambda grad: sums.append(grad.data_ptr()))
    (x.exp().sum() + ops.first_rows(x, 2).sum()).backward()
    assert sums == blocks and len(blocks) == 1


def edges(seed: int, count: int, targets: int = 4, sources: int = 9) -> ops.InEdges:
    draw = torch.Generator().manual_seed(seed)
    ends = torch.stack([torch.randint(n, (count,), generator=draw) for n in (sources, targets)])
    return ops.build_csc(ends, targets, sources)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
@pytest.mark.parametrize("counts", [(12, 15), (12, 0), (0, 0)])
@pytest.mark.parametrize("used", [(True, True, True), (False, True, True), (True, False, False)])
def test_relations_read_one_after_the_other(
    reduce: str, counts: tuple[int, int], used: tuple[bool, bool, bool]
) -> None:
    graphs = [edges(number, count) for number, count in enumerate(counts)]
    weights = torch.randn(3, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    grads: list[Tensor] = []
    for chained in (True, False):
        x = torch.linspace(-1, 1, 27, dtype=torch.float64).view(9, 3).sin().requires_grad_()
        if chained:
            first, rest = ops.aggregate_with_targets(
                x, graphs[0].indptr, graphs[0].indices, reduce=reduce, targets=9
            )
            second, own = ops.aggregate_with_targets(
                rest, graphs[1].indptr, graphs[1].indices, reduce=reduce, targets=4
            )
        else:
            first, second = (ops.aggregate(x, one.indptr, one.indices, reduce=reduce) for one in graphs)
            own = x[:4]
        outs = zip((first, second, own), weights, used, strict=True)
        loss = torch.stack([(out * weight).sum() for out, weight, is_used in outs if is_used]).sum()
        grads += torch.autograd.grad(loss, [x])
    assert torch.allclose(grads[0], grads[1], rtol=0, atol=1e-12)
