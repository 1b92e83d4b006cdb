"""ReLU with dropout: which elements survive, how they are scaled, and what flows back."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pyg_batchgnn.train.model.pyg_layers.relu_dropout import ReluDropout, keep_mask


@pytest.mark.parametrize("drop", [0.5, 0.25, 0.1, 0.3, 0.9])
def test_elements_are_kept_with_the_probability_asked_for(drop: float) -> None:
    torch.manual_seed(0)
    mask, keep = keep_mask(torch.Size([1000, 1001]), drop, torch.float32)
    assert abs(keep - (1 - drop)) < 2**-16
    assert set(mask.unique().tolist()) == {0.0, 1.0}
    spread = (keep * (1 - keep) / mask.numel()) ** 0.5
    assert abs(mask.double().mean().item() - keep) < 5 * spread


def test_neighbouring_elements_are_independent() -> None:
    torch.manual_seed(1)
    mask, _ = keep_mask(torch.Size([2_000_000]), 0.5, torch.float64)
    for lag in (1, 2, 7, 8, 16):
        correlation = ((mask[lag:] - 0.5) * (mask[:-lag] - 0.5)).mean().item() * 4
        assert abs(correlation) < 5 / mask.numel() ** 0.5, lag


def test_forward_and_backward_follow_the_mask() -> None:
    torch.manual_seed(2)
    x = torch.randn(300, 40, requires_grad=True)
    layer = ReluDropout(0.5).train()
    torch.manual_seed(3)
    out = layer(x * 1.0)
    torch.manual_seed(3)
    mask, keep = keep_mask(x.shape, 0.5, x.dtype)
    torch.testing.assert_close(out, x.relu() * mask / keep)
    upstream = torch.randn_like(out)
    out.backward(upstream)
    torch.testing.assert_close(x.grad, upstream * mask * (x > 0) / keep)


def test_the_same_seed_gives_the_same_mask() -> None:
    layer, x = ReluDropout(0.3).train(), torch.randn(50, 7).abs()
    torch.manual_seed(4)
    first = layer(x.clone())
    torch.manual_seed(4)
    assert torch.equal(first, layer(x.clone()))
    assert not torch.equal(first, layer(x.clone()))


@pytest.mark.parametrize("layer", [ReluDropout(0.5).eval(), ReluDropout(0.0).train()])
def test_without_dropout_it_is_relu(layer: nn.Module) -> None:
    x = torch.randn(20, 3)
    assert torch.equal(layer(x.clone()), x.relu())


@pytest.mark.parametrize("drop", [-0.1, 1.0, 2.0])
def test_impossible_probabilities_are_refused(drop: float) -> None:
    with pytest.raises(ValueError, match="dropout must be"):
        ReluDropout(drop)
