"""Plans of negatives, made from PyG's `NegativeSampling` and a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.sampler import NegativeSampling

from pyg_batchgnn.data import Group, Relation, RowKind, Schema
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
    pools: list[NodePool] = []
    counts = [graph.num_nodes[graph.schema.type_number(end)] for end in (relation[0], relation[2])]
    for node_type, count, weight in zip(
        (relation[0], relation[2]), counts, end_weights(sampling, relation, counts), strict=True
    ):
        time = None if times is None else times.get(Group(RowKind.NODE, node_type))
        pools.append(NodePool.of(count, time, weight))
    sources, targets = pools
    existing = None
    if avoids_edges:
        check_relation(relation, graph.schema)
        held_by = ExistingPairs.by_target if mode is NegativeMode.BINARY else ExistingPairs.by_source
        existing = held_by(graph.in_edges(relation), sources, targets)
    return NegativePlan(mode, sampling.amount, sources, targets, existing)


def end_weights(sampling: NegativeSampling, relation: Relation, counts: Sequence[int]) -> list[Tensor | None]:
    """Returns the weights of the nodes that sources and targets of negatives are drawn from.

    Args:
        sampling: PyG's description of the negatives.
        relation: the relation of the links.
        counts: the numbers of nodes of the types of its ends.

    Raises:
        TypeError, ValueError: weights that cannot be.
    """
    ends = ("src_weight", relation[0], counts[0]), ("dst_weight", relation[2], counts[1])
    return [_weight(name, getattr(sampling, name), node_type, count) for name, node_type, count in ends]


def check_relation(relation: Relation, schema: Schema) -> None:
    """Raises ValueError unless the graph has the relation whose edges are avoided."""
    if relation not in schema.relations:
        raise ValueError(
            f"exclude_existing=True avoids edges of {relation}, which the graph does not have; it has "
            f"{list(schema.relations)}"
        )


def _weight(name: str, weight: Any, node_type: str, count: int) -> Tensor | None:
    if weight is None:
        return None
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
    return weight.detach().cpu()
