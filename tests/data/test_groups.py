"""Groups of rows."""

from __future__ import annotations

from typing import Any

import pytest

from pyg_batchgnn.data import Group, RowKind


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
