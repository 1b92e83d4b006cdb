"""Normalisation, ReLU and dropout as modules, against those of torch and PyG."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.nn import BatchNorm, Dropout
from pyg_batchgnn.nn.modules import row_norm
from tests.support.accuracy import assert_as_pygs

OPTIONS: list[dict[str, Any]] = [
    {},
    {"momentum": None},
    {"momentum": 0.3, "eps": 0.01},
    {"affine": False},
    {"track_running_stats": False},
    {"dtype": torch.float64},
]


def both(**options: Any) -> tuple[BatchNorm, torch.nn.BatchNorm1d]:
    ours, torchs = BatchNorm(6, **options), torch.nn.BatchNorm1d(6, **options)
    generator = torch.Generator().manual_seed(4)
    for parameter in torchs.parameters():
        parameter.data.copy_(torch.rand(6, generator=generator) + 0.5)
    ours.load_state_dict(torchs.state_dict())
    return ours, torchs


def batch(rows: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(rows, 6, generator=torch.Generator().manual_seed(seed), dtype=dtype) * 2 + 1


def assert_same_state(ours: torch.nn.Module, torchs: torch.nn.Module) -> None:
    mine, other = ours.state_dict(), torchs.state_dict()
    assert list(mine) == list(other)
    for name in other:
        assert mine[name].dtype is other[name].dtype
        torch.testing.assert_close(mine[name], other[name], rtol=1e-6, atol=1e-6)


def statistics(norm: torch.nn.Module, x: Tensor) -> dict[str, Tensor]:
    out = norm(x)
    kept = {key: one.clone() for key, one in norm.named_buffers() if one.is_floating_point()}
    return {"output": out, **kept}


@pytest.mark.parametrize("options", OPTIONS)
def test_trains_and_evaluates_as_torchs(options: dict[str, Any]) -> None:
    ours, torchs = both(**options)
    dtype = options.get("dtype", torch.float32)
    for rows in (50, 51, 52, 9):
        if rows == 9:
            ours.eval()
            torchs.eval()
        assert_as_pygs(ours, torchs, statistics, statistics, batch(rows, rows, dtype))
    for (key, mine), other in zip(ours.state_dict().items(), torchs.state_dict().values(), strict=True):
        assert mine.dtype is other.dtype and (mine.is_floating_point() or torch.equal(mine, other)), key


def test_relu_in_the_same_pass() -> None:
    ours, torchs = both()
    fused = copy.deepcopy(ours)
    fused.relu = True
    x = batch(40, 1)
    assert torch.equal(fused(x), ours(x).relu())
    assert_same_state(fused, ours)
    assert "relu=True" in repr(BatchNorm(6, relu=True)) and list(
        BatchNorm(6, relu=True).state_dict()
    ) == list(torchs.state_dict())


@pytest.mark.parametrize("rows", [0, 1])
def test_fewer_than_two_rows_use_running_statistics(rows: int) -> None:
    ours, torchs = both()
    ours(batch(30, 0))
    before = copy.deepcopy(ours.state_dict())
    torchs.load_state_dict(before)
    torchs.eval()
    x = batch(rows, 1).requires_grad_()
    out = ours(x)
    torch.testing.assert_close(out, torchs(x))
    out.sum().backward()
    assert ours.weight.grad is not None and ours.weight.grad.isfinite().all()
    assert all(torch.equal(before[name], value) for name, value in ours.state_dict().items())


def test_one_row_without_running_statistics_is_refused() -> None:
    ours = BatchNorm(6, track_running_stats=False)
    assert ours(batch(0, 0)).shape == (0, 6)
    with pytest.raises(ValueError, match="track_running_stats=True"):
        ours(batch(1, 0))


def test_bfloat16_with_statistics_in_float32() -> None:
    ours, _ = both()
    x = batch(500, 3).bfloat16()
    wanted = ours(x.float())
    found = ours(x)
    assert found.dtype is torch.bfloat16
    assert torch.equal(found, wanted.bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(ours(x), found)
    lower = copy.deepcopy(ours).bfloat16()
    assert lower(x).dtype is torch.bfloat16 and lower.running_mean.dtype is torch.bfloat16


def test_compiles_without_a_break_and_leaves_its_input() -> None:
    (ours, _), x = both(), batch(20, 0)
    kept = x.clone()
    ours(x)
    ours.eval()(x)
    assert torch.equal(x, kept)
    assert torch._dynamo.explain(ours)(x).graph_break_count == 0


@pytest.mark.parametrize(
    ("x", "error", "words"),
    [
        (torch.randn(5, 7), ValueError, ["6 columns", "[5, 7]"]),
        (torch.randn(5, 6, 2), ValueError, ["two dimensions"]),
        (torch.randn(5, 6).half(), TypeError, ["float16"]),
    ],
)
def test_refused(x: Tensor, error: type[Exception], words: list[str]) -> None:
    with pytest.raises(error) as caught:
        BatchNorm(6)(x)
    assert all(word in str(caught.value) for word in words), caught.value


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


def test_dropout_follows_its_key_or_torchs_generator() -> None:
    dropout, x = Dropout(0.5, inplace=False), torch.ones(100, 10)
    torch.manual_seed(3)
    first, second = dropout(x), dropout(x)
    torch.manual_seed(3)
    assert torch.equal(dropout(x), first) and torch.equal(dropout(x), second)
    assert not torch.equal(first, second)
    node = torch.randperm(100)
    key = ops.dropout_key(1, 2, 3, 4)
    out = dropout(x, key)
    assert torch.equal(out, dropout(x, key)) and torch.equal(dropout(x, key, node), out[node])
    state = torch.get_rng_state()
    dropout(x, key)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("p", [1.0, -0.1, 1.5])
def test_dropout_refuses(p: float) -> None:
    with pytest.raises(ValueError, match=str(p)):
        Dropout(p)


def watched() -> torch.nn.Module:
    module = torch.nn.LayerNorm(6)
    module.register_forward_hook(lambda *_: None)
    return module


@pytest.mark.parametrize(
    ("norm", "x"),
    [
        (watched, torch.ones(3, 6)),
        (lambda: pyg.LayerNorm(6), torch.ones(3, 6)),
        (torch.nn.Identity, torch.ones(3, 6)),
        (lambda: type("Own", (torch.nn.LayerNorm,), {})(6), torch.ones(3, 6)),
        (lambda: torch.nn.LayerNorm([3, 6]), torch.ones(3, 6)),
        (lambda: torch.nn.LayerNorm(6), torch.ones(2, 3, 6)),
        (lambda: torch.nn.LayerNorm(6), torch.ones(6)),
        (lambda: torch.nn.LayerNorm(6), torch.ones(3, 5)),  # torch refuses it
        (lambda: torch.nn.LayerNorm(6), torch.ones(3, 6).double()),
        (lambda: torch.nn.LayerNorm(6).half(), torch.ones(3, 6).half()),
        (lambda: torch.nn.LayerNorm(6, device="meta"), torch.ones(3, 6, device="meta")),
    ],
)
def test_other_rows_are_left_to_the_module(norm: Callable[[], torch.nn.Module], x: Tensor) -> None:
    assert row_norm(norm(), x) is None


def test_rows_are_left_to_torch_under_autocast_and_transforms() -> None:
    module, x = torch.nn.LayerNorm(6), torch.randn(3, 6)
    with torch.autocast("cpu", torch.bfloat16):
        assert row_norm(module, x) is None
    found: list[Any] = []
    torch.func.vmap(lambda one: found.append(row_norm(module, one)) or one)(torch.randn(2, 3, 6))
    assert found == [None]
