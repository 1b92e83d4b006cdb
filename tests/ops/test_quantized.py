"""Rows of bytes: decoded rows beside exact arithmetic, and what torch does with such a table."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from pyg_batchgnn import ops
from pyg_batchgnn.ops import QuantizedTensor
from pyg_batchgnn.ops.quantized import _decode_by_torch
from tests.support.quantized_tables import drawn_table, exactly_decoded
from tests.support.tiers import every_level, fixed


@every_level
def test_rows_of_every_width_are_decoded_to_the_same_bits() -> None:
    for columns in (*range(1, 36), 64, 100, 300):
        for dtype in (torch.float32, torch.bfloat16):
            table = drawn_table(9, columns, seed=columns, dtype=dtype)
            index = torch.randint(0, 9, (20,))
            assert torch.equal(ops.gather_rows(table, index), exactly_decoded(table)[index]), columns


@fixed(60)
@given(
    rows=st.integers(1, 30),
    columns=st.integers(1, 300),
    asked=st.integers(0, 90),
    step=st.integers(1, 3),
    margin=st.integers(0, 5),
    wide=st.booleans(),
    dtype=st.sampled_from(ops.DECODED),
    seed=st.integers(0, 1000),
)
def test_gathers_decoded_rows(
    rows: int, columns: int, asked: int, step: int, margin: int, wide: bool, dtype: torch.dtype, seed: int
) -> None:
    whole = drawn_table(rows * step, columns + margin, seed, dtype)
    table = QuantizedTensor(whole.codes[::step, :columns], whole.decoding[:, :columns], dtype)
    wanted = exactly_decoded(table)
    assert torch.equal(table.dequantize(), wanted)
    index = torch.randint(0, rows, (asked,)).to(torch.int64 if wide else torch.int32)
    assert torch.equal(ops.gather_rows(table, index), wanted[index])
    out = torch.full((asked, columns + 2), 7.0, dtype=dtype)
    ops.put_rows(out[:, 1:-1], table, index)
    assert torch.equal(out[:, 1:-1], wanted[index])
    assert bool((out[:, [0, -1]] == 7).all())


def test_many_rows_on_several_threads() -> None:
    table = drawn_table(300, 100, seed=0)
    index = torch.randint(0, 300, (20_000,))
    with ops.thread_limit(2):
        found = ops.gather_rows(table, index)
    assert torch.equal(found, exactly_decoded(table)[index])


def test_rounds_once() -> None:
    """The sum lies so near the middle of two floats that float64 would round it there."""
    codes = torch.tensor([[65]], dtype=torch.int8)
    decoding = torch.tensor([[16519105 * 2.0**-54], [1.0]])  # 65 * scale = 2**-24 + 2**-54
    table = QuantizedTensor(codes, decoding)
    assert float(codes.double() * decoding[0].double() + 1) == 1 + 2**-24  # halfway, to even: 1
    for found in (table.dequantize(), _decode_by_torch(codes, decoding), exactly_decoded(table)):
        assert float(found) == 1 + 2**-23


@pytest.mark.parametrize("columns", [None, 5])
@pytest.mark.parametrize(
    "index",
    [
        torch.tensor([3, 0, 3]),
        torch.tensor([-1, 2]),
        torch.tensor([[1, 2], [-6, 4]]),
        torch.tensor(4),
        torch.tensor([], dtype=torch.int64),
        torch.tensor([True, False, True, False, False, True]),
        [1, -2],
        2,
        -1,
        slice(1, 5, 2),
    ],
    ids=str,
)
def test_selects_rows_as_torch_does(index: object, columns: int | None) -> None:
    table = drawn_table(6, columns, seed=1)
    found = table[index]
    decoded = found.dequantize() if isinstance(found, QuantizedTensor) else found
    assert torch.equal(decoded, exactly_decoded(table)[index])


def test_other_selections() -> None:
    table = drawn_table(6, 4, seed=2)
    wanted = exactly_decoded(table)
    for index in (torch.tensor([5, 0]), torch.tensor([5, 0], dtype=torch.int32), torch.tensor(2)):
        assert torch.equal(table.index_select(0, index), wanted.index_select(0, index))
        assert torch.equal(functional.embedding(index, table), wanted[index])
    part = table[1:, 1:3]
    assert isinstance(part, QuantizedTensor) and torch.equal(part.dequantize(), wanted[1:, 1:3])
    assert torch.equal(ops.gather_rows(part, torch.tensor([4, 0])), wanted[[5, 1], 1:3])
    mask = wanted > 0
    assert torch.equal(table[mask], wanted[mask])
    assert torch.equal(table[:, torch.tensor([1])], wanted[:, [1]])


@pytest.mark.parametrize("select", [lambda x, i: x[i], lambda x, i: x.index_select(0, i), ops.gather_rows])
@pytest.mark.parametrize("index", [[6], [0, -7]])
def test_rows_out_of_range(select: Callable[[Tensor, Tensor], Tensor], index: list[int]) -> None:
    with pytest.raises(IndexError, match="index holds"):
        select(drawn_table(6, 4, seed=3), torch.tensor(index))


@pytest.mark.parametrize(
    ("scale", "offset"), [(0.0, 0.0), (-1.0, 0.0), (float("nan"), 0.0), (1.0, float("inf"))]
)
def test_refuses_scales_that_are_not_positive(scale: float, offset: float) -> None:
    decoding = torch.tensor([[1.0, scale], [0.0, offset]])
    with pytest.raises(ValueError, match="column 1 has the scale"):
        QuantizedTensor(torch.zeros(3, 2, dtype=torch.int8), decoding)


def test_put_rows_wants_rows_of_the_decoded_dtype() -> None:
    table = drawn_table(6, 4, seed=4)
    with pytest.raises(ValueError, match="cannot be put into"):
        ops.put_rows(torch.empty(6, 4, dtype=torch.bfloat16), table)
    out: Tensor = torch.empty(3, 4)
    ops.put_rows(out, table)
    assert torch.equal(out, exactly_decoded(table)[:3])


@pytest.mark.parametrize("dtype", ops.DECODED)
def test_operators_are_registered_in_full(dtype: torch.dtype) -> None:
    table = drawn_table(6, 4, seed=5)
    index, out = torch.tensor([1, 5, 1]), torch.empty(3, 4, dtype=dtype)
    kernels = torch.ops.pyg_batchgnn
    torch.library.opcheck(kernels.gather_decoded.default, (table.codes, table.decoding, index, dtype, 1))
    torch.library.opcheck(kernels.put_decoded.default, (table.codes, table.decoding, index, out, 1))
