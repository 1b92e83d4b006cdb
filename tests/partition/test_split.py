"""The partition book, and the partitioner that the tests compare with."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyg_batchgnn.partition import PartitionBook, directory_slice
from tests.support.reference_partition import internal_ids, split_graph


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6))
def test_owners_are_those_of_the_ranges(sizes: list[int]) -> None:
    book = PartitionBook([0, *torch.tensor(sizes).cumsum(0).tolist()])
    wanted = [part for part, size in enumerate(sizes) for _ in range(size)]
    assert book.owner(torch.arange(sum(sizes), dtype=torch.int32)).tolist() == wanted
    assert [node for part in range(book.parts) for node in book.nodes_of(part)] == list(range(sum(sizes)))


@pytest.mark.parametrize("offsets", [[], [0], [1, 2], [0, 3, 2], [-1, 4]])
def test_a_book_that_cannot_be(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="must ascend from 0"):
        PartitionBook(offsets)


@given(st.integers(0, 20), st.integers(1, 6), st.randoms(use_true_random=False))
def test_parts_hold_every_edge_once_and_in_order(num_nodes: int, parts: int, random: object) -> None:
    draw = torch.Generator().manual_seed(random.randint(0, 2**31))  # type: ignore[attr-defined]
    edges = 3 * num_nodes
    edge_index = torch.randint(0, max(num_nodes, 1), (2, edges), generator=draw)
    owner = torch.randint(0, parts, (num_nodes,), generator=draw)
    ids, found = internal_ids(owner), torch.full((2, edges), -1)
    original = torch.empty_like(ids)
    original[ids] = torch.arange(num_nodes)
    for number in range(parts):
        part = split_graph(edge_index, owner, parts, number)
        own = torch.arange(part.first, part.first + part.num_nodes)
        assert torch.equal(original[own], part.node)
        degrees = part.in_edges.degrees
        found[0, part.in_edges.explicit_edge_ids()] = original[part.in_edges.indices.long()]
        found[1, part.in_edges.explicit_edge_ids()] = torch.repeat_interleave(part.node, degrees)
        for i in range(part.num_nodes):
            edges = part.in_edges.edges(range(i, i + 1))
            ids_of_node = part.in_edges.explicit_edge_ids()[edges.start : edges.stop]
            assert torch.equal(ids_of_node, ids_of_node.sort().values)
        mine = directory_slice(num_nodes, parts, number)
        assert torch.equal(part.directory.long(), ids[mine.start : mine.stop])
    assert torch.equal(found, edge_index)
