"""Operators of the partitioner: grouping rows by owner, appending edges, assigning nodes to parts.

What comes from a data set or over the network is checked, here or in the kernel; the partitioner's
own arrays are not.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from pyg_batchgnn.ops.checks import check_range, check_vector, is_ascending
from pyg_batchgnn.ops.library import kernels

#: The owner of a node that is not assigned yet.
UNASSIGNED = -1


def group_by_owner(owner: Tensor, groups: int) -> tuple[Tensor | None, Tensor]:
    """Sorts rows by group, stably, by counting. ``owner``: [n] int32 or int64, the group of each
    row, in [0, groups). Returns [n] int32, the rows by group, or None if they are in that order;
    and [groups] int64, the number of rows of each group."""
    if groups < 0:
        raise ValueError(f"the number of groups must not be negative, got {groups}")
    check_vector("owner", owner)
    check_range("owner", owner, groups, "groups")
    order, counts = kernels.group_by_owner(owner, groups)
    return order if order.numel() else None, counts


def group_by_range(values: Tensor, bounds: Tensor) -> tuple[Tensor | None, Tensor]:
    """Sorts rows by the range of their value, as `group_by_owner`.

    Args:
        values: [n] int32 or int64. Values outside all ranges belong to the first or the last.
        bounds: [ranges + 1] int64, ascending. Range g is [bounds[g], bounds[g + 1]).
    """
    check_vector("values", values)
    check_vector("bounds", bounds, (torch.int64,))
    if bounds.numel() < 2:
        raise ValueError("bounds must have at least two entries, a begin and an end")
    if not is_ascending(bounds):
        raise ValueError("bounds must ascend, but an entry is below the one before it")
    order, counts = kernels.group_by_range(values, bounds)
    return order if order.numel() else None, counts


def count_values(values: Tensor, first: int, counts: Tensor) -> None:
    """Adds 1 to ``counts[value - first]`` for each value. Raises IndexError for one outside."""
    check_vector("values", values)
    check_vector("counts", counts, (torch.int64,))
    increment_version(counts)
    if not kernels.count_values_(values, first, counts):
        raise IndexError(f"a value is outside [{first}, {first + counts.numel()})")


def place_edges(edges: Tensor, first: int, cursor: Tensor, indices: Tensor, edge_ids: Tensor) -> None:
    """Appends edges to the in-edges of the nodes from ``first`` on.

    Args:
        edges: [n, 3] int32 or int64: destination, source and id of each edge, in the order of the
            lists. int64 if indices or edge ids are.
        cursor: [nodes] int64, the position of the next edge of each node; advanced.
        indices: [e] int32 or int64 sources, written to.
        edge_ids: [e] int32 or int64, written to.
    """
    increment_version((cursor, indices, edge_ids))
    if not kernels.place_edges_(edges, first, cursor, indices, edge_ids):
        raise IndexError(f"an edge has no place in the {cursor.numel()} lists from node {first} on")


@dataclass(frozen=True, eq=False)
class StreamRules:
    """How a streaming policy chooses a part."""

    limit: Tensor  # [k] float64, the largest load of a part of each kind
    # The score of Fennel (neighbours minus a price), not of LDG (neighbours times free room).
    fennel: bool
    alpha: float  # the price of a full part in Fennel
    step: int  # the weight of a node in the estimate of the load
    key: int  # signed 64 bits, decides between equally good parts
    mend: bool = False  # moves only nodes of parts with more than a limit, to parts with room


def assign_nodes(
    indptr: Tensor,
    indices: Tensor,
    first: int,
    weight: Tensor,
    owner: Tensor,
    found: Tensor,
    rows: range,
    load: Tensor,
    rules: StreamRules,
) -> None:
    """Assigns the nodes ``rows`` of a slice of the graph to parts, one after the other.

    Args:
        indptr: [n + 1] int64, of the in-edges of the nodes [first, first + n) by original id.
        indices: [e] int32 or int64, the original ids of their sources.
        weight: [n, k] int32, what each node adds to the loads of its part.
        owner: [n] int32, the part of every node or `UNASSIGNED`; written to.
        found: int32, the owners of the sources of ``rows`` outside the slice, in order.
        load: [k, parts] float64, the estimated loads of every part; written to.
    """
    increment_version((owner, load))
    kernels.assign_nodes_(
        *(indptr, indices, first, weight, owner, found, rows.start, rows.stop, load),
        *(rules.limit, rules.fennel, rules.mend, rules.alpha, rules.step, rules.key),
    )
