"""`InEdges` finds edges by target; `InEdges.checked` refuses arrays that do not fit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyg_batchgnn import ops
from pyg_batchgnn.ops import InEdges


@given(st.lists(st.lists(st.integers(0, 5), max_size=4), max_size=6), st.data())
def test_ranges_of_targets(lists: list[list[int]], data: st.DataObject) -> None:
    indptr = torch.tensor([0, *map(len, lists)]).cumsum(0)
    indices = torch.tensor([source for sources in lists for source in sources], dtype=torch.int32)
    found = InEdges.checked(indptr, indices, num_sources=6)
    assert (found.num_targets, found.num_edges) == (len(lists), sum(map(len, lists)))
    assert found.degrees.tolist() == list(map(len, lists))
    begin = data.draw(st.integers(0, len(lists)))
    rows = range(begin, data.draw(st.integers(begin, len(lists))))
    pairs = [(source, row) for row in rows for source in lists[row]]
    assert list(zip(found.sources(rows).tolist(), found.targets(rows).tolist(), strict=True)) == pairs
    assert len(found.edges(rows)) == len(pairs)
    assert torch.equal(found.targets(), found.targets(range(len(lists))))


def test_edge_ids_are_positions_unless_they_are_given() -> None:
    indptr, indices, edge_ids = torch.tensor([0, 2]), torch.tensor([0, 0]), torch.tensor([7, 3])
    assert InEdges(indptr, indices).explicit_edge_ids().tolist() == [0, 1]
    assert InEdges(indptr, indices, edge_ids).explicit_edge_ids() is edge_ids


def test_nothing_is_copied() -> None:
    arrays = torch.tensor([0, 1, 3]), torch.tensor([1, 0, 1]), torch.tensor([2, 0, 1])
    found = InEdges.checked(*arrays)
    assert found.indptr is arrays[0] and found.indices is arrays[1] and found.edge_ids is arrays[2]


@pytest.mark.parametrize(
    ("sources", "options", "error", "text"),
    [
        ([0, 4], {}, IndexError, "indices holds 4, but node ids go from 0 to 1"),
        ([0, 4], {"num_sources": 4}, IndexError, "indices holds 4, but node ids go from 0 to 3"),
        ([0, 4], {"num_sources": 5}, None, ""),
        (
            [0, 1],
            {"edge_ids": torch.tensor([0, 9])},
            IndexError,
            "edge_ids holds 9, but edge ids go from 0 to 1",
        ),
        ([0, 1], {"edge_ids": torch.tensor([0, 9]), "num_edge_ids": 10}, None, ""),
        ([0, 1], {"num_sources": 2**31}, None, ""),
        ([0, 1], {"num_sources": 2**31 + 1}, TypeError, "cannot name all 2147483649 nodes"),
    ],
)
def test_ranges_are_checked(
    sources: list[int], options: dict[str, Any], error: type[Exception] | None, text: str
) -> None:
    arrays = torch.tensor([0, 1, 2]), torch.tensor(sources, dtype=torch.int32)
    if error is None:
        InEdges.checked(*arrays, **options)
        return
    with pytest.raises(error, match=text):
        InEdges.checked(*arrays, **options)


@pytest.mark.parametrize(
    ("count", "fits"), [(0, True), (2**31 - 1, True), (2**31, True), (2**31 + 1, False), (2**40, False)]
)
def test_ids_that_fit_32_bits(count: int, fits: bool) -> None:
    assert ops.fits_int32(count) is fits
    assert ops.id_dtype(count) is (torch.int32 if fits else torch.int64)
    assert (max(count - 1, 0) <= torch.iinfo(torch.int32).max) is fits


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0" * 16),
        (255, "00000000000000ff"),
        (2**64 - 1, "f" * 16),
        (-1, "f" * 16),
        (2**64 + 1, "0" * 15 + "1"),
    ],
)
def test_digests_are_printed_as_sixteen_digits(value: int, text: str) -> None:
    assert ops.digest_text(value) == text
