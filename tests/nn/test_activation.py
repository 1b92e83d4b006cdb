"""`nn.ReLU` and `nn.Dropout`."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from pyg_batchgnn import ops
from pyg_batchgnn.nn import Dropout, ReLU


def test_relu_as_torchs() -> None:
    x = torch.randn(30, 7)
    wanted = x.relu()
    assert torch.equal(ReLU(inplace=False)(x), wanted) and not torch.equal(x, wanted)
    assert ReLU()(x) is x and torch.equal(x, wanted)
    assert repr(ReLU()) == repr(torch.nn.ReLU(inplace=True))


def test_dropout_trains_and_evaluates() -> None:
    x = torch.randn(500, 40)
    start = x.clone()
    dropout = Dropout(0.3, inplace=False)
    out = dropout(x)
    assert torch.equal(x, start)
    kept = out != 0
    torch.testing.assert_close(out[kept], start[kept] / 0.7, rtol=1e-4, atol=0)
    assert 0.66 < float(kept.float().mean()) < 0.74
    assert dropout.eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert Dropout(0.3)(x) is x and not torch.equal(x, start)


def test_dropout_without_a_key_follows_torchs_generator() -> None:
    dropout, x = Dropout(0.5, inplace=False), torch.ones(100, 10)
    torch.manual_seed(3)
    first, second = dropout(x), dropout(x)
    torch.manual_seed(3)
    assert torch.equal(dropout(x), first) and torch.equal(dropout(x), second)
    assert not torch.equal(first, second)


def test_dropout_with_a_key_is_a_function_of_it() -> None:
    dropout, x = Dropout(0.5, inplace=False), torch.ones(100, 10)
    node = torch.randperm(100)
    key = ops.dropout_key(1, 2, 3, 4)
    out = dropout(x, key)
    assert torch.equal(out, dropout(x, key)) and torch.equal(dropout(x, key, node), out[node])
    state = torch.get_rng_state()
    dropout(x, key)
    assert torch.equal(torch.get_rng_state(), state)


def test_recomputation_drops_the_same() -> None:
    dropout = Dropout(0.5, inplace=False)
    x = torch.randn(100, 10, requires_grad=True)
    out = checkpoint(dropout, x, use_reentrant=False)
    out.sum().backward()
    assert x.grad is not None and torch.equal(x.grad != 0, out != 0)


@pytest.mark.parametrize("p", [1.0, -0.1, 1.5])
def test_dropout_refuses(p: float) -> None:
    with pytest.raises(ValueError, match=str(p)):
        Dropout(p)
