"""The owned nodes that a pass goes over, by type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pyg_batchgnn.cache.cuts import OwnedTargets
from pyg_batchgnn.data import Schema
from pyg_batchgnn.ops import OwnedEdges


class HasEdges(Protocol):
    """A graph that tells which in-edges the process owns."""

    schema: Schema

    def owned_edges(self, relation: int) -> OwnedEdges: ...


def owned_targets(graph: HasEdges, relations: Sequence[int]) -> list[OwnedTargets]:
    """Returns the targets of some relations, given by number; the types ascend."""
    schema = graph.schema
    into: dict[int, list[int]] = {}
    for relation in relations:
        into.setdefault(schema.target_types[relation], []).append(relation)
    return [
        OwnedTargets(
            node_type,
            [graph.owned_edges(one) for one in into[node_type]],
            [schema.source_types[one] for one in into[node_type]],
        )
        for node_type in sorted(into)
    ]
