"""The aggregation of each relation of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from pyg_batchgnn.cache.kinds import Aggregation
from pyg_batchgnn.types import Relation, Schema

#: One aggregation for all relations, or one for each of some relations.
KindByRelation: TypeAlias = str | Aggregation | Mapping[Relation, str | Aggregation]


def kinds_of(given: KindByRelation, schema: Schema) -> dict[int, Aggregation]:
    """Returns the aggregation by number of the relation, in the order of the schema.

    Raises:
        ValueError: there is no such relation or aggregation, or GCN's is given for a relation
            between two types.
    """
    if isinstance(given, Mapping):
        unknown = [relation for relation in given if relation not in schema.relations]
        if unknown or not given:
            raise ValueError(
                f"kind names {unknown or 'no relation'}, but the graph has the relations "
                f"{list(schema.relations)}"
            )
        by_name = {relation: Aggregation.parse(kind) for relation, kind in given.items()}
    else:
        by_name = dict.fromkeys(schema.relations, Aggregation.parse(given))
    for (source, name, target), kind in by_name.items():
        if kind is Aggregation.SYMMETRIC and source != target:
            raise ValueError(
                f"'symmetric' is GCN's aggregation, which is for relations within one node type, but "
                f"{(source, name, target)} joins two; give {{relation: 'mean' or 'sum'}} for it, or leave it "
                f"out"
            )
    return {schema.relation_number(one): by_name[one] for one in schema.relations if one in by_name}


def kinds_by_name(kinds: Mapping[int, Aggregation], schema: Schema) -> dict[str, str]:
    """Returns the aggregations as arguments on which ranks agree, each with its relation's name."""
    return {
        f"aggregation of {'-'.join(schema.relations[number])}"
        if schema.has_names
        else "aggregation": kind.value
        for number, kind in kinds.items()
    }
