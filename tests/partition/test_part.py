"""Parts of typed graphs: rows, internal ids and directories by type, and accessors that refuse."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pyg_batchgnn.data import Group, RowKind
from pyg_batchgnn.partition import Part, PartitionBook
from tests.support.reference_partition import (
    book_of,
    internal_ids_by_type,
    typed_parts,
)
from tests.support.tiers import fixed
from tests.support.typed_graphs import SCHEMAS, TypedCase, typed_cases

# Part #############################################################################################

SIZES = st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=1, max_size=5)


@given(SIZES)
def test_owners_and_types_are_those_of_the_ranges(sizes: list[list[int]]) -> None:
    flat = [size for part in sizes for size in part]
    book = PartitionBook([0, *torch.tensor(flat).cumsum(0).tolist()], 3)
    wanted = [
        (part, of) for part, row in enumerate(sizes) for of, size in enumerate(row) for _ in range(size)
    ]
    nodes = torch.arange(sum(flat), dtype=torch.int32)
    assert list(zip(book.owner(nodes).tolist(), book.type_of(nodes).tolist(), strict=True)) == wanted
    assert (book.parts, book.num_nodes, book.sizes.tolist()) == (len(sizes), sum(flat), sizes)
    ranges = [book.nodes_of(part, of) for part in range(book.parts) for of in range(3)]
    assert [node for one in ranges for node in one] == list(range(sum(flat)))
    assert [node for part in range(book.parts) for node in book.nodes_of(part)] == list(range(sum(flat)))
    assert [book.num_nodes_of(of) for of in range(3)] == torch.tensor(sizes).sum(0).tolist()


def test_books_of_other_types_differ() -> None:
    one, two = PartitionBook([0, 2, 4]), PartitionBook([0, 2, 4], 2)
    assert one != two and one.digest != two.digest and two == PartitionBook([0, 2, 4], 2)
    with pytest.raises(ValueError, match="3 offsets do not fit 3 node types"):
        PartitionBook([0, 2, 4], 3)


def owners_of(case: TypedCase, parts: int, seed: int) -> list[Tensor]:
    draw = torch.Generator().manual_seed(seed)
    low = seed % parts  # the parts below own nothing
    return [torch.randint(low, parts, (count,), generator=draw) for count in case.num_nodes.values()]


@fixed(25)
@given(st.data(), st.integers(1, 4), st.integers(0, 99))
def test_parts_hold_every_node_and_edge_once_and_in_order(data: st.DataObject, parts: int, seed: int) -> None:
    case = data.draw(typed_cases())
    owners, schema = owners_of(case, parts, seed), case.schema
    found = typed_parts(case.graph(), owners, parts, {schema.node_groups[0]: {"own": torch.arange(100)}})
    book = book_of(owners, parts)
    internal = internal_ids_by_type(owners, book)
    for number, owner in enumerate(owners):
        assert torch.equal(book.owner(internal[number]), owner)
        assert bool((book.type_of(internal[number]) == number).all())
    original = torch.cat([part.node for part in found])
    for number, relation in enumerate(schema.relations):
        edges = torch.full_like(case.edge_index[relation].long(), -1)
        for part in found:
            one = part.owned_edges_of(number)
            ids = one.in_edges.explicit_edge_ids()
            assert bool((book.type_of(one.in_edges.indices) == schema.source_types[number]).all())
            edges[0, ids] = original[one.in_edges.indices.long()]
            edges[1, ids] = one.node.repeat_interleave(one.in_edges.degrees)
            assert one.num_edges == edges.shape[1] and part.in_edges_of(relation) is one.in_edges
        assert torch.equal(edges, case.edge_index[relation].long())
    for part in found:
        part.check()
        for number in range(schema.num_types):
            own, ids = part.directory_of(number)
            assert torch.equal(ids.long(), internal[number][own.start : own.stop])
            assert torch.equal(original[part.nodes_of(number)], part.original_ids(number))


@pytest.fixture
def typed() -> Part:
    schema = SCHEMAS[3]
    counts = dict(zip(schema.node_types, (5, 7, 3, 0), strict=True))
    edges = {relation: torch.tensor([[0, 1, 2], [2, 0, 2]]) for relation in schema.relations}
    case = TypedCase(schema, counts, edges, {}, {})
    return typed_parts(case.graph(), owners_of(case, 1, 0), 1)[0]


def test_accessors_of_homogeneous_graphs_say_what_to_read(typed: Part) -> None:
    for name, instead in (("in_edges", "in_edges_of"), ("owned_edges", "owned_edges_of")):
        with pytest.raises(AttributeError, match=rf"'{name}' can be read .* read part\.{instead}\("):
            getattr(typed, name)
    with pytest.raises(AttributeError, match="'split' can be read"):
        typed.split("train")
    assert typed.split("train", "paper").numel() == 0
    assert typed.num_edges == sum(edges.num_edges for edges in typed.relations)


def test_a_part_that_does_not_fit_its_schema(typed: Part) -> None:
    with pytest.raises(ValueError, match="came with a book of 1 types"):
        replace(typed, book=PartitionBook(typed.book.part_offsets)).check()
    with pytest.raises(ValueError, match="5 lists of in-edges and 1 numbers"):
        replace(typed, edge_counts=(3,)).check()
    with pytest.raises(ValueError, match="attributes of venue came, which is not in the schema"):
        replace(typed, attributes={Group(RowKind.NODE, "venue"): {}}).check()


# Split ############################################################################################


@pytest.mark.parametrize("offsets", [[], [0], [1, 2], [0, 3, 2], [-1, 4]])
def test_a_book_that_cannot_be(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="must ascend from 0"):
        PartitionBook(offsets)
