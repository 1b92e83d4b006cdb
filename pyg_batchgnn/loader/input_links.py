"""PyG's forms of ``edge_label_index``, ``edge_label`` and ``edge_label_time``, checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn.data import Relation, Schema
from pyg_batchgnn.loader.link_inputs import RelationLinks
from pyg_batchgnn.ops import INTEGERS, check_range
from pyg_batchgnn.sample import named_relation


@dataclass(frozen=True, eq=False)
class LinkGraph:
    """The graph of a loader's links, as far as they depend on it.

    Attributes:
        schema: the node types and the relations.
        num_nodes: the number of nodes of each type.
        all_edges: returns the edges of a relation as links, as far as they are here; collective
            over ranks.
    """

    schema: Schema
    num_nodes: Sequence[int]
    all_edges: Callable[[Relation], RelationLinks]


@dataclass(frozen=True, eq=False)
class LinkRequest:
    """The user's links, as given to the loader.

    Attributes:
        index: ``edge_label_index``.
        labels: ``edge_label``, or None.
        times: ``edge_label_time``, or None.
        ids: ``input_id``, or None.
    """

    index: Any
    labels: Any = None
    times: Any = None
    ids: Any = None


@dataclass(frozen=True, eq=False)
class RelationRequest:
    """The user's links of one relation.

    Attributes:
        relation: the relation.
        links: the links; their ``index`` is None for all edges.
        what: the words for them in errors.
    """

    relation: Relation
    links: LinkRequest
    what: str


def untyped_links(request: LinkRequest, graph: LinkGraph) -> list[RelationRequest]:
    """Returns the links of a homogeneous graph as those of its relation.

    Args:
        request: ``index`` is [2, n], or None for all edges; with stores also (None, index).
        graph: the graph.

    Raises:
        ValueError: another form.
    """
    index = request.index
    if isinstance(index, (tuple, list)) and len(index) == 2 and index[0] is None:
        index = index[1]
    if isinstance(index, (str, Mapping)) or _is_relation(index) or _names_relation(index):
        raise ValueError(
            f"edge_label_index={_described(index)} names an edge type, but the graph is homogeneous; give "
            f"[2, n] node ids, or None for all edges"
        )
    links = dataclasses.replace(request, index=index)
    return [RelationRequest(graph.schema.relations[0], links, "edge_label_index")]


def typed_links(request: LinkRequest, graph: LinkGraph) -> list[RelationRequest]:
    """Returns the links of a graph with named types by relation.

    Args:
        request: ``index`` is an edge type, (edge type, None or [2, n]), or a dict from edge types
            to None or [2, n]. What goes with a dict is a dict by edge type as well.
        graph: the graph. It need not have the edge type, only the types of its ends.

    Raises:
        TypeError, ValueError: another form, or an edge type that cannot be meant.
    """
    index, schema = request.index, graph.schema
    if isinstance(index, Mapping):
        return _several(request, index, graph)
    if _is_relation(index):
        names, given = index, None
    elif _names_relation(index):
        names, given = index
    else:
        raise ValueError(
            f"edge_label_index must name an edge type of the graph: give ('user', 'buys', 'item'), "
            f"(('user', 'buys', 'item'), index) or a dict of several types, got {_described(index)}; the "
            f"graph has {list(schema.relations)}"
        )
    relation = named_relation(schema, names)
    links = dataclasses.replace(request, index=given)
    return [RelationRequest(relation, links, f"edge_label_index of {relation}")]


def _several(request: LinkRequest, index: Mapping[Any, Any], graph: LinkGraph) -> list[RelationRequest]:
    if not index:
        raise ValueError(f"edge_label_index names no edge type; the graph has {list(graph.schema.relations)}")
    relations = {named_relation(graph.schema, names): given for names, given in index.items()}
    labels, times, ids = (
        by_relation(name, given, graph.schema, relations)
        for name, given in (
            ("edge_label", request.labels),
            ("edge_label_time", request.times),
            ("input_id", request.ids),
        )
    )
    if times and (missing := [one for one in relations if one not in times]):
        raise ValueError(f"edge_label_time lacks {missing[0]}: give times for all edge types")
    return [
        RelationRequest(
            one,
            LinkRequest(given, labels.get(one), times.get(one), ids.get(one)),
            f"edge_label_index of {one}",
        )
        for one, given in relations.items()
    ]


def by_relation(
    name: str, given: Any, schema: Schema, relations: Mapping[Relation, Any]
) -> dict[Relation, Any]:
    """Returns an argument that goes with links of several relations, by relation.

    Raises:
        TypeError, ValueError: it is no dict, or names another relation.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(
            f"{name} must be a dict by edge type, as edge_label_index is, got {type(given).__name__}"
        )
    found = {named_relation(schema, names): value for names, value in given.items()}
    if unknown := [one for one in found if one not in relations]:
        raise ValueError(f"{name} names {unknown[0]}, which edge_label_index does not")
    return found


def checked_links(request: RelationRequest, graph: LinkGraph) -> RelationLinks:
    """Returns the links of one relation, checked. Collective over ranks for all edges.

    Raises:
        TypeError, ValueError, IndexError: an unknown type, ids outside the graph, or labels, times
            or ids that do not fit the links.
    """
    relation, links, what = request.relation, request.links, request.what
    for end in (relation[0], relation[2]):
        if end not in graph.schema.node_types:
            known = ", ".join(map(repr, graph.schema.node_types))
            raise ValueError(
                f"{what} names the node type {end!r}, which the graph does not have; it has {known}"
            )
    if links.index is None:
        found = _all_edges(relation, graph, what)
    else:
        found = RelationLinks(relation, _index(what, links.index, relation, graph))
    count = len(found)
    times = None if links.times is None else _aligned("edge_label_time", links.times, count, what)
    if times is not None and times.dtype is not torch.int64:
        raise TypeError(
            f"edge_label_time must be torch.int64, as the times of the graph are, got {times.dtype}; use "
            f".to(torch.int64) in the same unit"
        )
    label, ids = (
        None if values is None else _aligned(name, values, count, what)
        for name, values in (("edge_label", links.labels), ("input_id", links.ids))
    )
    return dataclasses.replace(found, label=label, time=times, input_id=ids)


def _all_edges(relation: Relation, graph: LinkGraph, what: str) -> RelationLinks:
    if relation not in graph.schema.relations:
        raise ValueError(
            f"{what} stands for all edges of {relation}, which the graph has not; give [2, n] node ids, "
            f"or one of {list(graph.schema.relations)}"
        )
    return graph.all_edges(relation)


def _index(what: str, given: Any, relation: Relation, graph: LinkGraph) -> Tensor:
    index = given if isinstance(given, Tensor) else torch.as_tensor(given)
    if index.numel() == 0 and index.dtype.is_floating_point:
        index = index.long()  # an empty list
    if index.dtype not in INTEGERS:
        raise TypeError(f"{what} must hold integer node ids, got {index.dtype}; use .long()")
    if index.dim() != 2 or index.size(0) != 2:
        raise ValueError(f"{what} must have shape [2, n], sources above targets, got {list(index.shape)}")
    index = index.to("cpu", torch.int64).contiguous()
    for row, end in zip(index, (relation[0], relation[2]), strict=True):
        check_range(f"{what}, ends of type {end!r}", row, graph.num_nodes[graph.schema.type_number(end)])
    return index


def _aligned(name: str, values: Any, count: int, what: str) -> Tensor:
    values = torch.as_tensor(values)
    rows = values.size(0) if values.dim() else 0
    if rows != count:
        raise ValueError(f"{name} has {rows} entries for {count} links of {what}; give one for each")
    return values.cpu().contiguous()


def _is_relation(names: Any) -> bool:
    return (
        isinstance(names, (tuple, list))
        and len(names) in (2, 3)
        and all(isinstance(one, str) for one in names)
    )


def _names_relation(index: Any) -> bool:
    return isinstance(index, (tuple, list)) and len(index) == 2 and _is_relation(index[0])


def _described(index: Any) -> str:
    return f"a {type(index).__name__}" if isinstance(index, (Tensor, list, Mapping)) else repr(index)
