"""The time from which each node exists, over ranks."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Group
from pyg_batchgnn.partition import Part, send_rows
from pyg_batchgnn.store.existence import ALWAYS, NEVER
from pyg_batchgnn.store.times import TimeLevel, Times


def first_times_of_part(part: Part, comm: Communicator, times: Times) -> Mapping[Group, Tensor]:
    """Returns the time from which each of a rank's nodes exists; see `first_times`. Collective.

    Where edges have times, the earliest of the edges from a node are sent to its owner, in rounds.
    They count as `MessageKind.PARTITION`.

    Args:
        part: this rank's.
        comm: of all ranks.
        times: the times of the rank's own rows: those of nodes by row of their type, those of edges
            by position in their relation's in-edges.

    Returns:
        By group of nodes that has times, [n_t] int64 by row of the type.
    """
    if times.level is TimeLevel.NODE:
        return times.by_group
    schema = part.schema
    first = torch.full((part.num_nodes,), NEVER)
    for number, edges in enumerate(part.relations):
        time = times.by_group.get(schema.edge_groups[number])
        if time is None:
            continue
        target = edges.targets() + part.rows_of(schema.target_types[number]).start
        first.scatter_reduce_(0, target, time, "amin")
        node, place = edges.indices.to(torch.int64).unique(return_inverse=True)
        earliest = torch.full_like(node, NEVER).scatter_reduce_(0, place, time, "amin")
        came = send_rows(comm, torch.stack([node, earliest], dim=1), part.book.owner(node))
        first.scatter_reduce_(0, came[:, 0] - part.first, came[:, 1].contiguous(), "amin")
    first = torch.where(first == NEVER, ALWAYS, first)
    return {group: first[part.rows_of(number)] for number, group in enumerate(schema.node_groups)}
