"""Groups of rows."""

from __future__ import annotations

from typing import Any

import pytest

from pyg_batchgnn.data import EDGES, NODES, Group, RowKind


def test_the_groups_of_a_homogeneous_graph() -> None:
    assert (NODES.kind, NODES.name) == (RowKind.NODE, "node")
    assert (EDGES.kind, EDGES.name) == (RowKind.EDGE, ("node", "to", "node"))
    assert (NODES.is_node, NODES.is_edge) == (True, False)
    assert (EDGES.is_node, EDGES.is_edge) == (False, True)


def test_groups_print_as_one_word() -> None:
    assert f"{NODES} {EDGES}" == "node node__to__node"


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (RowKind.NODE, ("a", "b", "c"), "a group of nodes is named by its type"),
        (RowKind.EDGE, "node", "three strings"),
        (RowKind.EDGE, ("a", "b"), "three strings"),
        (RowKind.EDGE, ["a", "b", "c"], "three strings"),
        (RowKind.EDGE, ("a", 1, "c"), "three strings"),
    ],
)
def test_names_that_do_not_fit_the_kind(kind: RowKind, name: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Group(kind, name)
