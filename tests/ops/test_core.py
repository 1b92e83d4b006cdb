"""The operators: what they compute, and that nothing wrong reaches a kernel."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from pyg_batchgnn import ops

DTYPES = [
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128),
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
]


def table_of(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(2 if dtype is torch.bool else 100, shape, generator=generator).to(dtype)


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gather_rows_of_every_dtype(dtype: torch.dtype, index_dtype: torch.dtype) -> None:
    index = torch.randint(50, (321,), dtype=index_dtype)
    for shape in [(50,), (50, 1), (50, 7), (50, 3, 5)]:
        table = table_of(shape, dtype)
        out = ops.gather_rows(table, index)
        assert out.dtype is dtype and torch.equal(out, table[index.long()])


@pytest.mark.parametrize("threads", [1, 2, 5, None])
@pytest.mark.parametrize("width", [1, 3, 4, 16, 17, 100, 128, 1433, 5000])
def test_gather_rows_of_every_width(width: int, threads: int | None) -> None:
    table = torch.randn(300, width)
    index = torch.randint(300, (max(8, 2_000_000 // (4 * width)),))
    assert torch.equal(ops.gather_rows(table, index, threads), table[index])


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t[::2],
        lambda t: t[:, 2:9],
        lambda t: t.t(),
        lambda t: t[:, ::2],
        lambda t: t.expand(60, *t.shape)[:, 0],
        lambda t: t[5:],
        lambda t: t.flip(0),
        lambda t: t[:, :0],
        lambda t: t[:, 0],
        lambda t: t[:1].expand(60, -1),
        lambda t: t.view(60, 4, 3).transpose(1, 2),
    ],
)
def test_gather_rows_of_views(view: Callable[[Tensor], Tensor]) -> None:
    table = view(torch.randn(60, 12))
    index = torch.randint(table.size(0), (77,))
    assert torch.equal(ops.gather_rows(table, index), table[index])


def test_gather_rows_of_nothing() -> None:
    assert ops.gather_rows(torch.randn(5, 3), torch.empty(0, dtype=torch.long)).shape == (0, 3)
    assert ops.gather_rows(torch.empty(0, 3), torch.empty(0, dtype=torch.long)).shape == (0, 3)


def test_gather_rows_cuts_gradients() -> None:
    out = ops.gather_rows(torch.randn(4, 2, requires_grad=True), torch.tensor([1]))
    assert not out.requires_grad


@pytest.mark.parametrize("table", [torch.tensor(1.0), torch.empty(3, device="meta")])
def test_gather_rows_refuses(table: Tensor) -> None:
    with pytest.raises(ValueError, match=r"must have rows|on meta"):
        ops.gather_rows(table, torch.tensor([0]))


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64, None])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 8, 100, 5000])
def test_put_rows_into_columns_of_bytes(width: int, index_dtype: torch.dtype | None) -> None:
    """Into and out of packed rows, whatever their alignment; what lies beside them stays."""
    table = torch.randint(256, (60, width), dtype=torch.uint8)
    index = None if index_dtype is None else torch.randint(60, (41,), dtype=index_dtype)
    packed = torch.full((41, width + 8), 7, dtype=torch.uint8)
    ops.put_rows(packed[:, 3 : 3 + width], table, index, threads=3)
    wanted = table[:41] if index is None else table[index.long()]
    assert torch.equal(packed[:, 3 : 3 + width], wanted)
    assert (packed[:, :3] == 7).all() and (packed[:, 3 + width :] == 7).all()
    back = ops.empty((41, width), torch.uint8)
    ops.put_rows(back, packed[:, 3 : 3 + width])
    assert torch.equal(back, wanted)


def test_put_rows_of_nothing_and_refusals() -> None:
    ops.put_rows(torch.empty(0, 3), torch.empty(0, 3), torch.empty(0, dtype=torch.int32))
    ops.put_rows(torch.empty(4, 0), torch.empty(4, 0))
    for out, table, index, text in (
        (torch.empty(2, 3), torch.empty(2, 4), None, "cannot be put"),
        (torch.empty(2, 3), torch.empty(2, 3).double(), None, "cannot be put"),
        (torch.empty(2, 3), torch.empty(1, 3), None, "do not fill"),
        (torch.empty(2, 3), torch.empty(9, 3), torch.tensor([1]), "do not fill"),
        (torch.empty(3, 2).t(), torch.empty(2, 3), None, "must be contiguous"),
    ):
        with pytest.raises(ValueError, match=text):
            ops.put_rows(out, table, index)


def test_empty_memory_is_used_again() -> None:
    for dtype in (torch.bool, torch.bfloat16, torch.int64):
        tensor = ops.empty((300, 7), dtype)
        assert tensor.shape == (300, 7) and tensor.dtype is dtype and tensor.is_contiguous()
        address = tensor.data_ptr()
        del tensor
        assert ops.empty((300, 7), dtype).data_ptr() == address
    assert ops.empty((0, 3), torch.float32).shape == (0, 3)


@pytest.mark.parametrize(
    "lists",
    [[[]], [[], []], [[5]], [[3, 1, 3], [1, 99]], [list(range(100)), [0]], [[63, 64, 65], [127, 0]]],
)
def test_unique_nodes(lists: list[list[int]]) -> None:
    tensors = [torch.tensor(one, dtype=torch.int64) for one in lists]
    unique, rows = ops.unique_nodes(tensors, 128)
    assert unique.tolist() == sorted({node for one in lists for node in one})
    assert [unique[row].tolist() for row in rows] == lists
    assert ops.count_unique_nodes(tensors, 128) == unique.numel()


def test_unique_nodes_starts_afresh() -> None:
    first, _ = ops.unique_nodes([torch.arange(100)], 100)
    second, _ = ops.unique_nodes([torch.tensor([7])], 200)
    assert first.numel() == 100 and second.tolist() == [7]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("threads", [1, 3])
def test_extent_and_is_ascending(dtype: torch.dtype, threads: int) -> None:
    values = torch.randint(-1000, 1000, (200_000,), dtype=dtype)
    assert ops.extent(values, threads) == (int(values.min()), int(values.max()))
    assert ops.extent(values[:0], threads) == (0, -1)
    assert not ops.is_ascending(values)
    assert ops.is_ascending(values.sort().values) and ops.is_ascending(values[:0])
    broken = values.sort().values
    broken[-1] = -5000
    assert not ops.is_ascending(broken)


@pytest.mark.parametrize(
    ("value", "signed"),
    [(0, 0), (-1, -1), (2**64 - 1, -1), (2**63, -(2**63)), (2**63 - 1, 2**63 - 1), (2**64, 0)],
)
def test_to_signed(value: int, signed: int) -> None:
    assert ops.to_signed(value) == signed


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ops.keyed_permutation(-1, 0, 0), ValueError, ["negative", "-1"]),
        (lambda: ops.minibatch_key(torch.tensor([0.5])), TypeError, ["int64", "float32"]),
        (lambda: ops.minibatch_key(torch.tensor([[1]])), ValueError, ["one dimension", "[1, 1]"]),
        (lambda: ops.minibatch_key([1]), TypeError, ["list", "as_tensor"]),
        (lambda: ops.unique_nodes([torch.tensor([1], dtype=torch.int32)], 5), TypeError, ["int32"]),
        (lambda: ops.unique_nodes([torch.arange(6)[::2]], 9), ValueError, ["contiguous", "stride 2"]),
        (lambda: ops.extent(torch.tensor([1.0])), TypeError, ["float32"]),
        (lambda: ops.check_range("seeds", torch.tensor([1, 9]), 5), IndexError, ["seeds", "9", "0 to 4"]),
        (lambda: ops.check_range("seeds", torch.tensor([-2, 9]), 5), IndexError, ["-2"]),
    ],
)
def test_refused(call: Callable[[], Any], error: type[Exception], words: list[str]) -> None:
    with pytest.raises(error) as caught:
        call()
    assert all(word in str(caught.value) for word in words), caught.value


def test_memory_is_counted_and_returns() -> None:
    ops.empty_cache()
    before = ops.memory_stats()
    ops.reset_peak()
    held = ops.gather_rows(torch.randn(100, 1000), torch.arange(100))
    during = ops.memory_stats()
    assert during.live - before.live >= held.nbytes
    assert during.peak >= during.live + during.cached
    del held
    after = ops.memory_stats()
    assert after.live == before.live and after.cached > 0
    ops.empty_cache()
    assert ops.memory_stats().cached == 0


def test_a_block_is_used_again_once_it_is_free() -> None:
    table, index = torch.randn(1000, 64), torch.arange(1000)
    first = ops.gather_rows(table, index)
    second = ops.gather_rows(table, index)
    assert first.data_ptr() != second.data_ptr()
    address = first.data_ptr()
    calls = ops.memory_stats().system_calls
    del first
    assert ops.gather_rows(table, index).data_ptr() == address
    assert ops.memory_stats().system_calls == calls


def test_the_processor_is_known() -> None:
    assert ops.simd_level() in (0, 256, 512)


def test_sizes_around_the_limit_of_a_class_map_no_memory_again() -> None:
    draw, limit = random.Random(0), 20 << 20
    ops.empty_cache()
    held, calls = ops.empty((int(0.985 * limit),), torch.uint8), -1
    for step in range(50):
        held = ops.empty((int(limit * draw.uniform(0.985, 1.01)),), torch.uint8)  # two at a time
        if step == 1:
            calls = ops.memory_stats().system_calls
    assert held.numel() and ops.memory_stats().system_calls == calls
    ops.empty_cache()
