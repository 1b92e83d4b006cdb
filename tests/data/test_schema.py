"""The schema: numbers by name, and the refusal of names that do not fit."""

from __future__ import annotations

import pytest

from pyg_batchgnn.data import EDGES, HOMOGENEOUS, NODES, Schema

CITES = ("paper", "cites", "paper")
WRITES = ("author", "writes", "paper")


def test_numbers_follow_the_given_order() -> None:
    schema = Schema(("author", "paper"), (WRITES, CITES))
    assert (schema.type_number("paper"), schema.relation_number(CITES)) == (1, 1)
    assert (schema.source_types, schema.target_types) == ((0, 1), (1, 1))
    assert schema.relations_into == ((), (0, 1))
    assert not schema.is_plain
    assert [str(group) for group in schema.edge_groups] == ["author__writes__paper", "paper__cites__paper"]


def test_one_type_and_one_relation_are_plain_under_any_names() -> None:
    assert HOMOGENEOUS.is_plain and Schema(("paper",), (CITES,)).is_plain
    assert not Schema(("paper",), (CITES, ("paper", "rev_cites", "paper"))).is_plain
    assert HOMOGENEOUS.node_groups == (NODES,) and HOMOGENEOUS.edge_groups == (EDGES,)


def test_names_must_fit_together() -> None:
    with pytest.raises(ValueError, match="'paper' occurs twice"):
        Schema(("paper", "paper"), ())
    with pytest.raises(ValueError, match="names the node type 'author'"):
        Schema(("paper",), (WRITES,))
    with pytest.raises(KeyError, match="no node type 'venue'"):
        HOMOGENEOUS.type_number("venue")
    with pytest.raises(KeyError, match="no relation"):
        HOMOGENEOUS.relation_number(CITES)
