"""The historical embedding cache of a layer, and its settings."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

from pyg_batchgnn.history import EmbeddingCache, HistoricalSettings, PushedRows, decode, encode
from tests.support.tiers import examples

# Embedding cache ##################################################################################


def ids(*node: int) -> Tensor:
    return torch.tensor(node, dtype=torch.int64)


def rows(*values: float) -> Tensor:
    return torch.tensor(values).view(-1, 1)


def read(cache: EmbeddingCache, step: int, *node: int) -> dict[int, float]:
    """Returns the rows that a search finds, by node."""
    found = cache.search(ids(*node), step)
    if not found.found:
        return {}
    loaded = cache.load(found).flatten().tolist()
    return {one: loaded[at] for one, at in zip(node, found.place.tolist(), strict=True) if at >= 0}


def test_rows_live_for_their_span() -> None:
    cache = EmbeddingCache(4, life_span=2)
    cache.store(ids(7, 8), rows(0.5, 1.5), step=3)
    assert read(cache, 5, 8, 1, 7) == {8: 1.5, 7: 0.5} and cache.nbytes > 0
    assert read(cache, 6, 7, 8) == {}
    cache.store(ids(8), rows(2.5), step=6)
    assert read(cache, 8, 7, 8) == {8: 2.5}


def test_an_empty_cache_finds_nothing() -> None:
    cache = EmbeddingCache(0, life_span=None)
    cache.store(ids(1), rows(1), step=0)
    assert read(cache, 0, 1) == {} and len(cache) == 0
    with pytest.raises(ValueError, match="no rows yet"):
        EmbeddingCache(1, None).load(EmbeddingCache(1, None).search(ids(1), 0))


@examples(40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), max_size=9), max_size=6), st.integers(1, 6))
def test_a_state_goes_on(steps: list[list[int]], lines: int) -> None:
    caches = [EmbeddingCache(lines, 3), EmbeddingCache(lines, 3)]
    for step, nodes in enumerate(steps):
        for cache in caches:
            cache.store(ids(*nodes), torch.arange(2.0 * len(nodes)).view(-1, 2) + step, step)
        caches[1].load_state_dict(caches[0].state_dict())
        for node in range(10):
            found = [cache.search(ids(node), step) for cache in caches]
            assert found[0].found == found[1].found
            if found[0].found:
                assert torch.equal(*(cache.load(one) for cache, one in zip(caches, found, strict=True)))


@pytest.mark.parametrize(
    ("changed", "error", "text"),
    [
        ({"lines": 0}, ValueError, "lines must be at least 1, got 0; None"),
        ({"life_span": -1}, ValueError, "life_span must be at least 1"),
        ({"push": 1.5}, TypeError, "push must be an integer or None, got 1.5"),
        ({"delay": None}, TypeError, "delay must be an integer, got None"),
        ({"delay": True}, TypeError, "delay"),
    ],
)
def test_settings_that_cannot_be(changed: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        HistoricalSettings(**changed)


# Message ##########################################################################################

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
