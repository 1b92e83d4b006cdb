"""The message in which rows are pushed."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from pyg_batchgnn.history import PushedRows, decode, encode
from tests.support.tiers import examples

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@st.composite
def pushes(draw: st.DrawFn) -> list[PushedRows]:
    """Draws the rows of some layers."""
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    layers = []
    for _ in range(draw(st.integers(0, 4))):
        count, columns = draw(st.integers(0, 5)), draw(st.integers(0, 7))
        node = torch.randint(1 << 40, (count,), generator=random)
        rows = torch.randn(count, columns, generator=random).to(draw(st.sampled_from(TYPES)))
        layers.append(PushedRows(node, rows))
    return layers


@examples(100, deadline=None)
@given(pushes())
def test_rows_come_back_as_they_were(layers: list[PushedRows]) -> None:
    message = encode(layers)
    assert message.numel() % 8 == 0
    found = decode(message)
    if not any(one.node.numel() for one in layers):
        assert not message.numel() and not found
        return
    for one, other in zip(layers, found, strict=True):
        assert torch.equal(one.node, other.node) and one.rows.dtype == other.rows.dtype
        assert torch.equal(one.rows, other.rows)


@examples(60, deadline=None)
@given(pushes(), st.integers(1, 40))
def test_truncated_messages_are_refused(layers: list[PushedRows], cut: int) -> None:
    message = encode(layers)
    if message.numel() <= 8 * cut:
        return
    with pytest.raises(ValueError, match=r"promised|cannot hold|cannot be"):
        decode(message[: -8 * cut])


@pytest.mark.parametrize(
    ("words", "text"),
    [([0], "of 0 layers"), ([1, 1, 1, 9], "type 9"), ([1, -1, 1, 0], "-1 rows"), ([1 << 62], "cannot hold")],
)
def test_other_bytes_are_refused(words: list[int], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        decode(torch.tensor(words).view(torch.uint8))


def test_a_few_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match="3 bytes"):
        decode(torch.zeros(3, dtype=torch.uint8))
