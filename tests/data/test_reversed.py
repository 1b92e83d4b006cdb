"""Reverse relations: the same edges with their ends exchanged, once for each relation."""

from __future__ import annotations

import pytest
import torch

from pyg_batchgnn.data import (
    Dataset,
    DatasetError,
    EdgeSet,
    NodeSet,
    Schema,
    stored_reverse,
    with_reverse_relations,
)


def test_every_relation_without_a_reverse_gets_one() -> None:
    edges = torch.tensor([[0, 1, 1], [2, 0, 2]], dtype=torch.int32)
    time = torch.tensor([5, 6, 7])
    sets = (
        EdgeSet(("a", "to", "b"), edges, {"time": time}),
        EdgeSet(("a", "near", "a"), edges[:, :0]),
        EdgeSet(("a", "in", "c"), edges),
        EdgeSet(("c", "rev_in", "a"), edges.flip(0)),
    )
    graph = Dataset("three", (NodeSet("a", 3), NodeSet("b", 3), NodeSet("c", 3)), sets)
    found = with_reverse_relations(graph)
    assert found.edge_sets[:4] == sets
    added = {one.relation: one for one in found.edge_sets[4:]}
    assert list(added) == [("b", "rev_to", "a"), ("a", "rev_near", "a")]
    reverse = added["b", "rev_to", "a"]
    assert torch.equal(reverse.edge_index, edges.flip(0)) and reverse.edge_index.dtype is torch.int32
    assert torch.equal(reverse.tables["time"], time)
    assert with_reverse_relations(found).schema == found.schema
    with pytest.raises(DatasetError, match="homogeneous"):
        with_reverse_relations(Dataset.homogeneous("plain", 3, edges))


def test_a_stored_reverse_is_found_from_both_sides() -> None:
    there, back = ("a", "to", "b"), ("b", "rev_to", "a")
    alone, elsewhere = ("a", "rev_of", "b"), ("a", "rev_to", "b")
    schema = Schema(("a", "b"), (there, back, alone, elsewhere))
    assert [stored_reverse(schema, one) for one in schema.relations] == [back, there, None, None]
    odd = Schema(("a", "b"), (alone, ("b", "rev_rev_of", "a")))
    assert [stored_reverse(odd, one) for one in odd.relations] == [*reversed(odd.relations)]
