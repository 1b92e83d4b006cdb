"""The names of a graph: its node types and relations in one fixed order, and its groups of rows.

A group is the rows that an attribute belongs to: the nodes of one type, or the edges of one
relation. A homogeneous graph has two groups, `NODES` and `EDGES`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

#: The names of a relation: its source type, its own name and its target type.
Relation = tuple[str, str, str]

#: Conventional names of attributes: the features and the labels of nodes, the features of edges.
FEATURES = "x"
LABELS = "y"
EDGE_FEATURES = "edge_attr"


class RowKind(enum.Enum):
    """Whether a row of attributes belongs to a node or an edge."""

    NODE = "node"
    EDGE = "edge"


def _is_relation(name: object) -> bool:
    return isinstance(name, tuple) and len(name) == 3 and all(isinstance(part, str) for part in name)


@dataclass(frozen=True)
class Group:
    """The nodes of one type or the edges of one relation, as a group of attribute rows. Raises
    ValueError if the name does not fit the kind."""

    kind: RowKind
    name: str | Relation  # the node type, or the relation as (source type, name, target type)

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


@dataclass(frozen=True)
class Schema:
    """The node types and the relations of a graph, in the order of PyG's ``data.metadata()``. Their
    numbers are positions in this order, which decides local ids, but never which edges are sampled.
    Raises ValueError if a name occurs twice, or a relation names an unknown type."""

    node_types: tuple[str, ...]
    relations: tuple[Relation, ...]  # each (source type, name, target type)
    has_names: bool = True  # False for a homogeneous graph, whose names are ours and not the user's

    def __post_init__(self) -> None:
        for kind, names in (("node type", self.node_types), ("relation", self.relations)):
            twice = [name for name in names if names.count(name) > 1] if len(set(names)) < len(names) else []
            if twice:
                raise ValueError(f"the {kind} {twice[0]!r} occurs twice in the schema; name each once")
        for relation in self.relations:
            for end in (relation[0], relation[2]):
                if end not in self._type_numbers:
                    raise ValueError(
                        f"relation {relation} names the node type {end!r}, which is not among "
                        f"{list(self.node_types)}"
                    )

    def to_json(self) -> dict[str, Any]:
        return {
            "node_types": list(self.node_types),
            "relations": [list(relation) for relation in self.relations],
        }

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Schema:
        """Reads what `to_json` wrote."""
        relations = []
        for names in said["relations"]:
            source, name, target = map(str, names)
            relations.append((source, name, target))
        return cls(tuple(map(str, said["node_types"])), tuple(relations))

    @property
    def num_types(self) -> int:
        """The number of node types."""
        return len(self.node_types)

    @property
    def num_relations(self) -> int:
        """The number of relations."""
        return len(self.relations)

    @property
    def is_plain(self) -> bool:
        """True for one node type and one relation, whatever their names."""
        return len(self.node_types) == 1 and len(self.relations) == 1

    def type_number(self, name: str) -> int:
        """Returns the number of a node type. Raises KeyError if the graph has no such type."""
        if name not in self._type_numbers:
            raise KeyError(f"the graph has no node type {name!r}; its types are {list(self.node_types)}")
        return self._type_numbers[name]

    def relation_number(self, relation: Relation) -> int:
        """Returns the number of a relation. Raises KeyError if the graph has no such relation."""
        if relation not in self._relation_numbers:
            raise KeyError(f"the graph has no relation {relation}; its relations are {list(self.relations)}")
        return self._relation_numbers[relation]

    @cached_property
    def source_types(self) -> tuple[int, ...]:
        """The number of each relation's source type."""
        return tuple(self._type_numbers[source] for source, _, _ in self.relations)

    @cached_property
    def target_types(self) -> tuple[int, ...]:
        """The number of each relation's target type."""
        return tuple(self._type_numbers[target] for _, _, target in self.relations)

    @cached_property
    def relations_into(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of the relations into each node type, in ascending order."""
        into: list[list[int]] = [[] for _ in self.node_types]
        for number, target in enumerate(self.target_types):
            into[target].append(number)
        return tuple(map(tuple, into))

    def type_of_rows(self, group: Group) -> int:
        """Returns the number of the node type whose owner has a group's rows: the type itself, or
        the target type of edges. Raises KeyError if the graph lacks the group."""
        if isinstance(group.name, str):
            return self.type_number(group.name)
        return self.target_types[self.relation_number(group.name)]

    @cached_property
    def node_groups(self) -> tuple[Group, ...]:
        """The group of attributes of each node type."""
        return tuple(Group(RowKind.NODE, name) for name in self.node_types)

    @cached_property
    def edge_groups(self) -> tuple[Group, ...]:
        """The group of attributes of each relation."""
        return tuple(Group(RowKind.EDGE, relation) for relation in self.relations)

    @cached_property
    def _type_numbers(self) -> Mapping[str, int]:
        return {name: number for number, name in enumerate(self.node_types)}

    @cached_property
    def _relation_numbers(self) -> Mapping[Relation, int]:
        return {relation: number for number, relation in enumerate(self.relations)}


#: The schema of a homogeneous graph.
HOMOGENEOUS = Schema(("node",), (("node", "to", "node"),), has_names=False)


#: The reverse of a relation has its name with this in front.
_PREFIX = "rev_"


def reverse_of(relation: Relation) -> Relation:
    """Returns the name of a relation's reverse: ends swapped, "rev_" in front."""
    source, name, target = relation
    return target, f"{_PREFIX}{name}", source


def stored_reverse(schema: Schema, relation: Relation) -> Relation | None:
    """Returns the relation of a graph that by its names reverses ``relation``: with swapped ends,
    and with "rev_" before one of the two names. None if there is none."""
    source, name, target = relation
    names = [reverse_of(relation)]
    if name.startswith(_PREFIX):
        names.insert(0, (target, name.removeprefix(_PREFIX), source))
    return next((one for one in names if one in schema.relations), None)
