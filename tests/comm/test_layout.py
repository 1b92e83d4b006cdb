"""Rows of bytes: exact round trips, views in place."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyg_batchgnn.comm import Field, RowLayout
from tests.support.tiers import examples

DTYPES = [torch.uint8, torch.bool, torch.int16, torch.bfloat16, torch.float32, torch.int64, torch.complex128]
FIELDS = st.builds(Field, st.sampled_from(DTYPES), st.lists(st.integers(0, 3), max_size=2).map(tuple))


def column(field: Field, rows: int) -> torch.Tensor:
    values = torch.randint(0, 2 if field.dtype == torch.bool else 256, (rows, *field.shape))
    return values.to(field.dtype)


@examples(60)
@given(st.dictionaries(st.text(max_size=3), FIELDS, min_size=1, max_size=6), st.integers(0, 4))
def test_columns_come_back_as_they_were(fields: dict[str, Field], rows: int) -> None:
    columns = {name: column(field, rows) for name, field in fields.items()}
    layout = RowLayout.of(columns)
    packed = layout.pack(columns)
    assert packed.shape == (rows, layout.row_bytes) and packed.dtype == torch.uint8
    used = sum(field.bytes for field in fields.values())
    assert used <= layout.row_bytes < used + max(field.dtype.itemsize for field in fields.values())
    received = torch.cat([torch.zeros_like(packed), packed])[rows:]  # somewhere inside a larger tensor
    unpacked, views = layout.unpack(received), layout.views(received)
    for name, wanted in columns.items():
        assert unpacked[name].dtype == wanted.dtype and unpacked[name].is_contiguous()
        assert torch.equal(unpacked[name], wanted) and torch.equal(views[name], wanted)


def test_views_write_in_place() -> None:
    layout = RowLayout({"id": Field(torch.int64), "x": Field(torch.float32, (3,)), "mask": Field(torch.bool)})
    packed = layout.empty(4)
    views = layout.views(packed)
    views["x"].copy_(torch.arange(12.0).view(4, 3))
    views["id"].copy_(torch.arange(4))
    views["mask"].fill_(True)
    assert torch.equal(layout.unpack(packed)["x"], torch.arange(12.0).view(4, 3))
    assert packed[:, 8 + 12 + 1 :].count_nonzero() == 0  # padding is the same bytes everywhere


def test_the_layout_does_not_depend_on_the_order_of_fields() -> None:
    one = RowLayout({"a": Field(torch.int64), "b": Field(torch.uint8), "c": Field(torch.int64)})
    other = RowLayout({"c": Field(torch.int64), "b": Field(torch.uint8), "a": Field(torch.int64)})
    assert one.offsets == other.offsets == {"a": 0, "c": 8, "b": 16}


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"x": torch.zeros(2, 3)}, "do not match"),
        ({"x": torch.zeros(2, 3), "y": torch.zeros(1)}, "differ in their number of rows"),
        ({"x": torch.zeros(2, 4), "y": torch.zeros(2)}, r"\[4\] per row"),
        ({"x": torch.zeros(2, 3).double(), "y": torch.zeros(2)}, "float64"),
    ],
)
def test_columns_that_do_not_fit_are_told(columns: dict[str, torch.Tensor], text: str) -> None:
    layout = RowLayout({"x": Field(torch.float32, (3,)), "y": Field(torch.float32)})
    with pytest.raises(ValueError, match=text):
        layout.pack(columns)


def test_packed_rows_of_another_layout_are_told() -> None:
    layout = RowLayout({"x": Field(torch.float32, (3,))})
    for packed in (torch.zeros(2, 13, dtype=torch.uint8), torch.zeros(2, 12)):
        with pytest.raises(ValueError, match="packed rows must be uint8"):
            layout.views(packed)
    with pytest.raises(ValueError, match="at least one field"):
        RowLayout({})
