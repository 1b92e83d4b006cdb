"""Amounts of memory as users give them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from pyg_batchgnn.cache import AggregationCache, AllNodes
from pyg_batchgnn.ops import number_of_bytes, parse_bytes

DATA = Data(x=torch.randn(4, 2), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))


def test_a_text_is_a_number_of_bytes() -> None:
    assert parse_bytes("512MiB") == 512 << 20 and parse_bytes("1.5 GB") == 1_500_000_000
    assert number_of_bytes("2k") == number_of_bytes(2000) == 2000 and number_of_bytes(None) is None
    assert parse_bytes("7B") == 7 and parse_bytes("0") == 0
    with pytest.raises(ValueError, match="write it like"):
        parse_bytes("lots")


@pytest.mark.parametrize("text", ["2", " 1000 ", "1.5"])
def test_a_text_needs_a_unit(text: str) -> None:
    for read in (parse_bytes, number_of_bytes, lambda one: AllNodes(DATA, memory_budget=one)):
        with pytest.raises(
            ValueError, match=f"'{text}' is an amount of memory without a unit; write it like"
        ):
            read(text)


def test_a_budget_may_be_a_text() -> None:
    wanted = AggregationCache.build(DATA, "mean")
    assert torch.equal(AggregationCache.build(DATA, "mean", memory_budget="1KiB").rows, wanted.rows)
    pieces = AllNodes(DATA, memory_budget="50 B")
    every = pieces.pieces(pieces.features, pieces.schema.relations, {"node": 8}, "pieces")
    found = [len(piece.targets["node"]) for piece in every]
    assert sum(found) == 4 and len(found) > 1


@pytest.mark.parametrize(
    ("budget", "error", "words"),
    [
        ("lots", ValueError, "write it like 2GiB"),
        ("0", ValueError, "at least 1, got 0"),
        (-5, ValueError, "at least 1, got -5"),
        (2.5, TypeError, "got 2.5"),
        (True, TypeError, "got True"),
    ],
)
def test_refused_budgets(budget: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        AggregationCache.build(DATA, "mean", memory_budget=budget)
    with pytest.raises(error, match=words):
        AllNodes(DATA, memory_budget=budget)
