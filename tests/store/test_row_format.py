"""Rows that are packed and unpacked are the same as before, for all types and shapes."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from pyg_batchgnn.store import RowBlock, RowFormat

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int16, torch.uint8, torch.bool]


@st.composite
def blocks(draw: st.DrawFn) -> RowBlock:
    """Draws some attributes of some rows, with or without original ids."""
    rows, seed = draw(st.integers(1, 6)), draw(st.integers(0, 99))
    random = torch.Generator().manual_seed(seed)
    attributes = {}
    for name in draw(st.lists(st.sampled_from(["x", "y", "original", "node", ""]), unique=True)):
        shape = (rows, *draw(st.lists(st.integers(0, 3), max_size=2)))
        values = torch.randint(0, 2, shape, generator=random)
        attributes[name] = values.to(draw(st.sampled_from(DTYPES)))
    return RowBlock(attributes, torch.arange(rows) if draw(st.booleans()) else None)


def assert_equal(found: RowBlock, expected: dict[str, torch.Tensor]) -> None:
    assert found.columns.keys() == expected.keys()
    for name, column in found.columns.items():
        assert column.dtype == expected[name].dtype and torch.equal(column, expected[name])


@given(tables=blocks(), data=st.data())
def test_rows_survive_bytes(tables: RowBlock, data: st.DataObject) -> None:
    rows = max((len(column) for column in tables.columns.values()), default=1)
    index = torch.tensor(data.draw(st.lists(st.integers(0, rows - 1))), dtype=torch.int64)
    form = RowFormat(tables, 1)
    packed = torch.full((form.wire_bytes * len(index),), 255, dtype=torch.uint8)
    form.pack(tables, index, packed)
    unpacked, gathered = form.empty(len(index)), form.empty(len(index))
    form.unpack(packed, unpacked)
    form.gather(gathered, tables, index)
    expected = {name: column[index] for name, column in tables.columns.items()}
    assert_equal(unpacked, expected)
    assert_equal(gathered, expected)
    assert form.row_bytes == sum(column[:1].nbytes for column in tables.columns.values())
    assert form.row_bytes <= form.wire_bytes < form.row_bytes + 8


@given(blocks())
def test_columns_tell_attributes_from_original_ids(block: RowBlock) -> None:
    again = RowBlock.of(block.columns)
    assert again.attributes.keys() == block.attributes.keys()
    assert (again.original is None) == (block.original is None)


def test_rows_are_views() -> None:
    block = RowBlock({"x": torch.zeros(4, 2)}, torch.arange(4))
    part = block.rows(1, 3)
    part.attributes["x"].fill_(1)
    assert block.attributes["x"].sum(1).tolist() == [0, 2, 2, 0]
    assert part.original is not None and part.original.tolist() == [1, 2]
