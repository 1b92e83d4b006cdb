"""ReLU and keyed dropout in place: values, gradients, and what dropout's decisions depend on."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops.library import kernels
from tests.support.reference_sampler import WORD, fold, words
from tests.support.tiers import every_level

DTYPES = [torch.float32, torch.float64, torch.bfloat16]


def kept_columns(key: int, node: int, columns: int, drop: float) -> list[bool]:
    word = list(islice(words(fold(key % WORD, node)), columns // 4 + 1))
    levels = round((1.0 - drop) * 2**16)
    return [(word[at // 4] >> (16 * (at % 4))) % 2**16 < levels for at in range(columns)]


@every_level
@pytest.mark.parametrize("drop", [0.1, 0.5, 0.9, 1e-6])
@pytest.mark.parametrize("columns", [1, 3, 8, 17, 64, 130])
def test_decisions_are_those_of_the_definition(columns: int, drop: float) -> None:
    node = torch.tensor([0, 5, 2**40, -1, 123_456_789])
    layer = ops.dropout_key(1, 2, 3, 4)
    out = ops.activate(torch.ones(5, columns), drop=drop, key=layer, node=node)
    wanted = torch.tensor([kept_columns(layer, number, columns, drop) for number in node.tolist()])
    assert torch.equal(out != 0, wanted)
    assert torch.equal(out, wanted.float() * ops.dropout_scale(drop))


@every_level
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (7,), (5, 1), (64, 33), (3, 4, 9), (2000, 256), ()])
@pytest.mark.parametrize(("relu", "drop"), [(True, 0.0), (False, 0.3), (True, 0.5)])
def test_values_and_gradients(shape: tuple[int, ...], relu: bool, drop: float, dtype: torch.dtype) -> None:
    start = torch.randn(shape, generator=torch.Generator().manual_seed(2)).to(dtype)
    x = start.clone().requires_grad_()
    own = x * 1  # in place is for what is no leaf
    address = own.data_ptr()
    out = ops.activate(own, relu=relu, drop=drop, key=9)
    assert out is own and out.data_ptr() == address
    columns = shape[-1] if shape else 1
    rows = start.numel() // columns
    kept = ops.activate(torch.ones(rows, columns), drop=drop, key=9).view(shape) != 0
    passes = kept & (start > 0) if relu else kept
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    scale = torch.tensor(ops.dropout_scale(drop), dtype=wide)
    wanted = torch.where(passes, (start.to(wide) * scale).to(dtype), torch.zeros((), dtype=dtype))
    assert torch.equal(out, wanted)
    grad = torch.randn(shape).to(dtype)
    out.backward(grad)
    expected = torch.where(passes, (grad.to(wide) * scale).to(dtype), torch.zeros((), dtype=dtype))
    assert x.grad is not None and torch.equal(x.grad, expected)


def test_one_may_follow_another_in_place() -> None:
    x = torch.randn(40, 10, requires_grad=True)
    out = ops.activate(ops.activate(x * 1, relu=True), drop=0.5, key=3)
    out.sum().backward()
    both = x.detach().clone().requires_grad_()
    ops.activate(both * 1, relu=True, drop=0.5, key=3).sum().backward()
    assert x.grad is not None and both.grad is not None and torch.equal(x.grad, both.grad)


def test_torch_says_so_where_the_overwritten_value_was_needed() -> None:
    x = torch.randn(5, 4, requires_grad=True)
    squared = x**2
    total = squared.sin()  # needs `squared` itself
    ops.activate(squared, relu=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.sum().backward()
    with pytest.raises(RuntimeError, match="leaf Variable"):
        ops.activate(x, relu=True)


def test_not_contiguous_and_empty() -> None:
    x = torch.randn(6, 4)
    wanted = x.t().relu()
    assert torch.equal(ops.activate(x.t(), relu=True), wanted)
    assert ops.activate(torch.empty(0, 4), relu=True, drop=0.5).shape == (0, 4)
    assert ops.activate(torch.empty(4, 0), relu=True).shape == (4, 0)
    assert ops.activate(x) is x


def test_what_is_not_a_number_passes_the_relu() -> None:
    for dtype in DTYPES:
        assert ops.activate(torch.tensor([[torch.nan, -1.0, -0.0, torch.inf]]).to(dtype), relu=True)[
            0, 0
        ].isnan()


def test_a_node_is_treated_alike_wherever_its_row_lies() -> None:
    node = torch.randperm(500)
    whole = ops.activate(torch.ones(500, 20), drop=0.5, key=77, node=node)
    part = ops.activate(torch.ones(50, 20), drop=0.5, key=77, node=node[200:250].clone())
    assert torch.equal(whole[200:250], part)
    by_number = ops.activate(torch.ones(500, 20), drop=0.5, key=77)
    assert torch.equal(by_number[node], whole)


FAR = 4.9  # standard deviations, which one normal number in a million exceeds


def mask(key: int, drop: float, rows: int = 2000, columns: int = 128, first: int = 0) -> Tensor:
    node = torch.arange(first, first + rows)
    return ops.activate(torch.ones(rows, columns), drop=drop, key=key, node=node) != 0


def standardised(kept: Tensor, drop: float) -> Tensor:
    """Returns numbers of mean zero and variance one, if the rate is right."""
    keep = round((1.0 - drop) * 2**16) / 2**16
    return (kept.double() - keep) / (keep * (1 - keep)) ** 0.5


@pytest.mark.parametrize("drop", [0.1, 0.5, 0.9])
def test_rate(drop: float) -> None:
    """Checks the rates of all elements, columns and nodes, and that they vary as draws do."""
    values = standardised(mask(ops.dropout_key(1, 0, 5, 1), drop, rows=4000), drop)
    assert abs(float(values.sum())) < FAR * values.numel() ** 0.5
    for dim in (0, 1):
        sums = values.sum(dim) / values.size(dim) ** 0.5
        assert float(sums.abs().max()) < FAR
        assert abs(float((sums**2).mean()) - 1) < FAR * (2 / sums.numel()) ** 0.5


def key(seed: int = 1, epoch: int = 0, minibatch: int = 5, layer: int = 1) -> int:
    return ops.dropout_key(seed, epoch, minibatch, layer)


PAIRS: dict[str, Callable[[float], tuple[Tensor, Tensor]]] = {
    "seeds": lambda drop: (mask(key(seed=1), drop), mask(key(seed=2), drop)),
    "epochs": lambda drop: (mask(key(epoch=0), drop), mask(key(epoch=1), drop)),
    "minibatches": lambda drop: (mask(key(minibatch=5), drop), mask(key(minibatch=6), drop)),
    "layers": lambda drop: (mask(key(layer=1), drop), mask(key(layer=2), drop)),
    "seed and epoch exchanged": lambda drop: (mask(key(1, 2), drop), mask(key(2, 1), drop)),
    "epoch and layer exchanged": lambda drop: (mask(key(1, 2, 5, 1), drop), mask(key(1, 1, 5, 2), drop)),
    "neighbouring nodes": lambda drop: (mask(3, drop), mask(3, drop, first=1)),
    "distant nodes": lambda drop: (mask(3, drop), mask(3, drop, first=2**32)),
    "neighbouring keys": lambda drop: (mask(3, drop), mask(4, drop)),
    "neighbouring columns": lambda drop: (mask(3, drop)[:, :-1], mask(3, drop)[:, 1:]),
    "neighbouring words": lambda drop: (mask(3, drop)[:, :-4], mask(3, drop)[:, 4:]),
    "ends of a word": lambda drop: (mask(3, drop)[:, 0::4], mask(3, drop)[:, 3::4]),
}


@pytest.mark.parametrize("drop", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("pair", PAIRS)
def test_independence(pair: str, drop: float) -> None:
    one, other = (standardised(kept, drop) for kept in PAIRS[pair](drop))
    assert abs(float((one * other).sum())) < FAR * one.numel() ** 0.5


def test_opcheck() -> None:
    bits = torch.randint(256, (6, 2), dtype=torch.uint8)
    torch.library.opcheck(kernels.mask_grad, (torch.randn(6, 11, requires_grad=True), bits, 2.0, 1))
    torch.library.opcheck(kernels.activate_, (torch.randn(6, 11), True, 0.5, 3, None, 1))


def test_gradcheck() -> None:
    x = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: ops.activate(x * 1, relu=True, drop=0.4, key=2), (x,))
    assert torch.autograd.gradgradcheck(lambda x: ops.activate(x.sin(), relu=True, drop=0.4, key=2), (x,))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ops.activate(torch.ones(2, 2), drop=1.0), ValueError, ["below 1", "1.0"]),
        (lambda: ops.activate(torch.ones(2, 2), drop=-0.1), ValueError, ["-0.1"]),
        (lambda: ops.activate(torch.ones(2, 2), drop=1 - 1e-9), ValueError, ["below 1"]),
        (lambda: ops.activate(torch.ones(2, 2).int(), relu=True), TypeError, ["int32"]),
        (lambda: ops.activate(torch.ones(2, 2).half(), relu=True), TypeError, ["float16"]),
        (lambda: ops.activate(torch.ones(2, 2).to_sparse(), relu=True), ValueError, ["sparse"]),
        (
            lambda: ops.activate(torch.ones(3, 2), drop=0.5, node=torch.arange(2)),
            ValueError,
            ["2 entries", "3 rows"],
        ),
        (lambda: ops.activate(torch.ones(2, 2), drop=0.5, node=torch.arange(2).int()), TypeError, ["int64"]),
    ],
)
def test_refused(call: Callable[[], Any], error: type[Exception], words: list[str]) -> None:
    with pytest.raises(error) as caught:
        call()
    assert all(word in str(caught.value) for word in words), caught.value


def test_half_a_level_is_rounded_as_the_kernels_round_it() -> None:
    drop = 1.0 - 2.5 / 2**16  # keeps 2.5 levels of 65,536, which kernels round to 3
    assert ops.dropout_scale(drop) == 2**16 / 3
    kept = ops.activate(torch.ones(4000, 1000), drop=drop, key=1)
    assert kept[kept != 0].unique().tolist() == [pytest.approx(2**16 / 3)]
