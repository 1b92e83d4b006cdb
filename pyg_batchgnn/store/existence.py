"""The time from which each node exists."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from pyg_batchgnn.data import Group
from pyg_batchgnn.store.times import TimeLevel, Times, by_position
from pyg_batchgnn.store.typed_graph import TypedGraph

#: The time of nodes that have none: before all others.
ALWAYS = torch.iinfo(torch.int64).min
#: Later than all times.
NEVER = torch.iinfo(torch.int64).max


def first_times(times: Times, graph: TypedGraph) -> Mapping[Group, Tensor]:
    """Returns the time from which each node exists, [N_t] int64 for each node type that has times.

    Nodes with times exist from theirs. If edges have times, a node exists from the earliest time of
    any timed edge at it, in either direction and under any relation. Nodes without a timed edge
    exist always.

    Args:
        times: the times of the graph's nodes or edges.
        graph: the graph.
    """
    if times.level is TimeLevel.NODE:
        return times.by_group
    schema = graph.schema
    first = {
        group: torch.full((count,), NEVER)
        for group, count in zip(schema.node_groups, graph.num_nodes, strict=True)
    }
    for number, edges in enumerate(graph.relations):
        time = times.by_group.get(schema.edge_groups[number])
        if time is not None:
            time = by_position(edges, time)
            source, target = (types[number] for types in (schema.source_types, schema.target_types))
            for end, node in ((source, edges.indices.long()), (target, edges.targets())):
                first[schema.node_groups[end]].scatter_reduce_(0, node, time, "amin")
    return {group: torch.where(time == NEVER, ALWAYS, time) for group, time in first.items()}
