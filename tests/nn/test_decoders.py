"""Decoders, beside plain formulas."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from pyg_batchgnn.nn import DotProductDecoder, MLPDecoder


@pytest.mark.parametrize("shapes", [((5, 8), (5, 8)), ((5, 1, 8), (5, 3, 8)), ((0, 8), (0, 8))])
def test_scores_and_gradients(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    source, target = (torch.randn(shape, requires_grad=True) for shape in shapes)
    product = source * target
    assert torch.allclose(DotProductDecoder()(source, target), product.sum(-1), atol=1e-5)
    mlp = MLPDecoder(8)
    hidden = functional.linear(product, mlp.hidden.weight, mlp.hidden.bias).relu()
    wanted = functional.linear(hidden, mlp.score.weight, mlp.score.bias).squeeze(-1)
    found = mlp(source, target)
    assert found.shape == wanted.shape and torch.allclose(found, wanted, atol=1e-5)
    inputs = [source, target, *mlp.parameters()]
    for one, other in zip(
        torch.autograd.grad(found.square().sum(), inputs),
        torch.autograd.grad(wanted.square().sum(), inputs),
        strict=True,
    ):
        assert torch.allclose(one, other, atol=1e-4)


def test_a_dot_product_has_no_parameters() -> None:
    assert not DotProductDecoder().state_dict()
