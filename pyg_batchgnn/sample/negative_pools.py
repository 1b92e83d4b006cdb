"""Plans of negatives, made from PyG's `NegativeSampling` and a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch_geometric.sampler import NegativeSampling

from pyg_batchgnn.data import Group, Relation, RowKind
from pyg_batchgnn.sample.existing_pairs import ExistingPairs
from pyg_batchgnn.sample.negatives import NegativeMode, NegativePlan
from pyg_batchgnn.sample.node_pool import NodePool
from pyg_batchgnn.store import TypedGraph


def negative_plan(
    sampling: NegativeSampling,
    relation: Relation,
    graph: TypedGraph,
    times: Mapping[Group, Tensor] | None,
    avoids_edges: bool,
) -> NegativePlan:
    """Returns the rule by which the negatives of a relation are drawn.

    Args:
        sampling: PyG's description of them.
        relation: the relation of the links.
        graph: the graph.
        times: by node type, the time from which each node exists; None if links have no times.
        avoids_edges: True if negatives must not be edges of the relation.

    Raises:
        TypeError, ValueError: weights that cannot be, or edges of a relation that is not there.
    """
    mode = NegativeMode(sampling.mode.value)
    sources, targets = (
        _pool(name, weight, node_type, graph, times)
        for name, weight, node_type in (
            ("src_weight", sampling.src_weight, relation[0]),
            ("dst_weight", sampling.dst_weight, relation[2]),
        )
    )
    existing = _existing(mode, relation, graph) if avoids_edges else None
    return NegativePlan(mode, sampling.amount, sources, targets, existing)


def _pool(
    name: str, weight: Tensor | None, node_type: str, graph: TypedGraph, times: Mapping[Group, Tensor] | None
) -> NodePool:
    count = graph.num_nodes[graph.schema.type_number(node_type)]
    if weight is not None:
        _check_weight(name, weight, node_type, count)
        weight = weight.detach().cpu()
    time = None if times is None else times.get(Group(RowKind.NODE, node_type))
    return NodePool.of(count, time, weight)


def _check_weight(name: str, weight: Any, node_type: str, count: int) -> None:
    if not isinstance(weight, Tensor) or not weight.dtype.is_floating_point:
        found = weight.dtype if isinstance(weight, Tensor) else type(weight).__name__
        raise TypeError(f"{name} must be a tensor of floating point numbers, got {found}; use .float()")
    if list(weight.shape) != [count]:
        raise ValueError(
            f"{name} has shape {list(weight.shape)} for {count} nodes of type {node_type!r}; give one weight "
            f"for each"
        )
    wrong = (~torch.isfinite(weight) | (weight < 0)).nonzero().view(-1)
    if wrong.numel():
        node = int(wrong[0])
        raise ValueError(
            f"{name} of node {node} is {float(weight[node])}: weights must be finite and not negative"
        )


def _existing(mode: NegativeMode, relation: Relation, graph: TypedGraph) -> ExistingPairs:
    schema = graph.schema
    if relation not in schema.relations:
        raise ValueError(
            f"exclude_existing=True avoids edges of {relation}, which the graph does not have; it has "
            f"{list(schema.relations)}"
        )
    held_by = ExistingPairs.by_target if mode is NegativeMode.BINARY else ExistingPairs.by_source
    return held_by(graph.in_edges(relation), graph.num_nodes[schema.type_number(relation[0])])
