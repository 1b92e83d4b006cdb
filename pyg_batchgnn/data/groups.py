"""The groups of rows that attributes belong to: the nodes of one type, the edges of one relation.

A graph has a list of groups. A homogeneous graph has two: `NODES` and `EDGES`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

#: Conventional names of attributes: the features and the labels of nodes, the features of edges.
FEATURES = "x"
LABELS = "y"
EDGE_FEATURES = "edge_attr"


class RowKind(enum.Enum):
    """The two kinds of rows: a row is about a node or about an edge."""

    NODE = "node"
    EDGE = "edge"


def _is_relation(name: object) -> bool:
    return isinstance(name, tuple) and len(name) == 3 and all(isinstance(part, str) for part in name)


@dataclass(frozen=True)
class Group:
    """The nodes of one type or the edges of one relation.

    Attributes:
        kind: the kind of the rows.
        name: the node type, or the relation as (source type, name, target type).

    Raises:
        ValueError: a name that does not fit the kind.
    """

    kind: RowKind
    name: str | tuple[str, str, str]

    def __post_init__(self) -> None:
        if self.is_node:
            if not isinstance(self.name, str):
                raise ValueError(f"a group of nodes is named by its type, a string, not {self.name!r}")
        elif not _is_relation(self.name):
            raise ValueError(
                f"a group of edges is named by three strings (source type, name, target type), "
                f"not {self.name!r}"
            )

    @property
    def is_node(self) -> bool:
        """True if the rows are nodes."""
        return self.kind is RowKind.NODE

    @property
    def is_edge(self) -> bool:
        """True if the rows are edges."""
        return self.kind is RowKind.EDGE

    def __str__(self) -> str:
        return self.name if isinstance(self.name, str) else "__".join(self.name)


#: The groups of a homogeneous graph.
NODES = Group(RowKind.NODE, "node")
EDGES = Group(RowKind.EDGE, ("node", "to", "node"))
