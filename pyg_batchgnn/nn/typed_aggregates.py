"""The input of a first layer of several relations whose aggregations were computed in advance.

See `aggregated` for a layer of one relation. Every node of the minibatch is a target.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch_geometric.nn.conv import MessagePassing

from pyg_batchgnn.nn.aggregated import KINDS, Aggregated, attribute_of, refuse_aggregated
from pyg_batchgnn.nn.features import features_by_type
from pyg_batchgnn.nn.inputs import NodeRows, Rows
from pyg_batchgnn.nn.linear import is_watched
from pyg_batchgnn.nn.native_conv import check_called
from pyg_batchgnn.nn.refusals import refuse
from pyg_batchgnn.nn.rows import RowView
from pyg_batchgnn.nn.sampled import Relation, TypedBatch, all_rows, is_typed
from pyg_batchgnn.nn.typed import TypeTerms


def aggregates_by_relation(
    minibatch: TypedBatch, x_dict: Mapping[str, Rows] | None = None
) -> dict[Relation, Aggregated]:
    """Returns the aggregates that a minibatch carries by relation, read in place.

    They are the input of the first `HeteroConv` of a model: ``conv(aggregates, minibatch)``
    computes all nodes of the minibatch.

    Args:
        minibatch: the minibatch, of a loader with an aggregation cache.
        x_dict: the own rows of the nodes by type; those that the minibatch carries if None.

    Returns:
        Aggregates by relation; none where there are none.
    """
    own = features_by_type(minibatch) if x_dict is None else x_dict
    schema, attributes = minibatch.schema, getattr(minibatch, "attributes", {})
    found: dict[Relation, Aggregated] = {}
    for relation, target in zip(schema.relations, schema.target_types, strict=True):
        rows: Any = attributes.get(schema.node_groups[target])
        for kind in KINDS if rows is not None else ():
            name = attribute_of(kind, relation, schema.is_plain)
            if name in rows.tables:
                table = rows.tables[name]
                neighbours = table if rows.row is None else RowView(table, rows.row)
                found[relation] = Aggregated(kind, neighbours, own.get(relation[2]))
    return found


def is_aggregated(given: Mapping[Any, Any]) -> bool:
    """Returns whether a layer is given aggregates by relation."""
    return any(isinstance(one, Aggregated) for one in given.values())


def terms_of_aggregates(
    convs: Mapping[Relation, Any], given: Mapping[Any, Any], minibatch: Any
) -> dict[str, TypeTerms]:
    """Computes a first layer of several relations from aggregates, up to the sum over them.

    Args:
        convs: the native convolution of each relation. Relations that the minibatch does not have
            are left out.
        given: the aggregates by relation.
        minibatch: the minibatch.

    Returns:
        The terms of each type that a relation leads to, in the order of the relations.

    Raises:
        TypeError: ``minibatch`` is no minibatch.
        ValueError: a convolution cannot read aggregates, there are none of its relation, or these
            are not the rows of the minibatch's nodes.
    """
    if not is_typed(minibatch):
        raise TypeError(f"aggregates belong to a minibatch's nodes, got edges of {type(minibatch).__name__}")
    results: dict[str, TypeTerms] = {}
    for relation, conv in convs.items():
        if relation not in minibatch.schema.relations:
            continue
        one, target = given.get(relation), relation[2]
        if not isinstance(one, Aggregated):
            raise ValueError(
                f"the minibatch carries no aggregates of {relation}; name it in AggregationCache.build, "
                "or leave its convolution out of the first layer"
            )
        _check(conv)
        rows = all_rows(minibatch, target)
        one.check_rows(rows.num_targets)
        if target not in results:
            own = None if one.own is None else NodeRows(one.own, rows.num_targets)
            results[target] = TypeTerms(rows, own)
        results[target].parts.append(conv.known_terms(one, rows))
    return results


def _check(conv: MessagePassing) -> None:
    """Raises ValueError if a convolution cannot read aggregates."""
    if not hasattr(conv, "known_terms"):
        raise refuse_aggregated(conv, "it weighs neighbours by weights that it learns")
    if is_watched(conv):
        raise refuse(conv, "hooks beside aggregates made beforehand", "remove the hooks")
    check_called(conv)
