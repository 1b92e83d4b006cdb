"""The native Linear is torch's."""

from __future__ import annotations

import pytest
import torch

from pyg_batchgnn import nn


@pytest.mark.parametrize("shape", [(5,), (7, 5), (2, 3, 5), (0, 5), (4, 0, 5)])
@pytest.mark.parametrize("bias", [True, False])
def test_any_leading_shape(shape: tuple[int, ...], bias: bool) -> None:
    native, torchs = nn.Linear(5, 8, bias=bias), torch.nn.Linear(5, 8, bias=bias)
    torchs.load_state_dict(native.state_dict())
    x = torch.randn(shape)
    torch.testing.assert_close(native(x), torchs(x))


def test_initialisation_and_state_are_torchs() -> None:
    torch.manual_seed(3)
    native = nn.Linear(5, 8)
    torch.manual_seed(3)
    torchs = torch.nn.Linear(5, 8)
    for key, value in torchs.state_dict().items():
        assert torch.equal(native.state_dict()[key], value)
    assert native.state_dict().keys() == torchs.state_dict().keys()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_weights_give_the_dtype(dtype: torch.dtype) -> None:
    layer = nn.Linear(5, 8).to(dtype)
    assert layer(torch.randn(3, 5, dtype=dtype)).dtype is dtype
    assert layer(torch.randn(3, 5, dtype=torch.bfloat16)).dtype is dtype


def test_autocast_computes_in_bfloat16_with_float32_weights() -> None:
    layer, x = nn.Linear(50, 8), torch.randn(30, 50, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y, wanted = layer(x), torch.nn.functional.linear(x, layer.weight, layer.bias)
    assert y.dtype is wanted.dtype is torch.bfloat16
    torch.testing.assert_close(y, wanted, rtol=1e-2, atol=1e-2)
    y.float().square().sum().backward()
    assert x.grad is not None and x.grad.dtype is torch.float32
    assert layer.weight.grad is not None and layer.weight.grad.dtype is torch.float32


def test_autocast_leaves_float64_alone_and_refuses_float16() -> None:
    x = torch.randn(3, 5, dtype=torch.float64)
    with torch.autocast("cpu", torch.bfloat16):
        assert nn.Linear(5, 8).double()(x).dtype is torch.float64
    with torch.autocast("cpu", torch.float16), pytest.raises(TypeError, match="float16"):
        nn.Linear(5, 8)(x.float())


def test_a_wrong_width_is_named() -> None:
    with pytest.raises(ValueError, match="4 columns"):
        nn.Linear(5, 8)(torch.randn(3, 4))


def test_accumulation_and_optimizer() -> None:
    layer, x = nn.Linear(5, 1), torch.randn(64, 5)
    target = x @ torch.randn(5, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    losses = []
    for _ in range(50):
        optimizer.zero_grad()
        for part in range(2):
            loss = (layer(x[part::2]) - target[part::2]).square().mean()
            loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.01 * losses[0]


def test_checkpoint_recomputes_the_same() -> None:
    layer, x = nn.Linear(5, 8), torch.randn(30, 5, requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
    (once,) = torch.autograd.grad(y.square().sum(), x)
    (plain,) = torch.autograd.grad(layer(x).square().sum(), x)
    assert torch.equal(once, plain)
