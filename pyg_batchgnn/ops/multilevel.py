"""Operators of the multilevel partitioner: undirected graphs with weights, their clusters and their
parts.

The arrays are the partitioner's own, and are not checked but for the ids of the given edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from pyg_batchgnn.ops.checks import check_range
from pyg_batchgnn.ops.library import kernels


@dataclass(frozen=True, eq=False)
class WeightedGraph:
    """A process's own nodes of an undirected weighted graph, with their neighbours."""

    indptr: Tensor  # [n + 1] int64, where each own node's neighbours begin
    indices: Tensor  # [e] int32, own nodes [0, n), then ghosts [n, n + ghosts): nodes of other processes
    node_weight: Tensor  # [n, k] int32, not negative, the weights of each own node
    # [e] int32, positive; None where every edge weighs as much as any other.
    edge_weight: Tensor | None = None
    num_ghosts: int = 0

    @property
    def num_nodes(self) -> int:
        return self.indptr.numel() - 1

    @property
    def num_all(self) -> int:
        return self.num_nodes + self.num_ghosts

    @property
    def num_edges(self) -> int:
        return self.indices.numel()

    def arrays(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """Returns the arrays in the order in which kernels take them."""
        return self.indptr, self.indices, self.edge_weight, self.node_weight


class SolvedPartition(NamedTuple):
    """A partition of a graph in one process."""

    part: Tensor  # [n] int32
    cut: int  # the weight of the edges that join different parts
    excess: float  # by how much parts exceed their limits, in limits, summed over parts and constraints


def cluster_nodes(
    graph: WeightedGraph, label: Tensor, room: Tensor, *, key: int, first: int = 0, together: bool = False
) -> int:
    """Moves each own node to the cluster with room that has most of its edges, by weight.

    Args:
        label: [n + ghosts] int32, the cluster of each node in [0, clusters); written for own nodes.
        room: [clusters, k] int64, how much each cluster may still grow; updated.
        key: signed 64 bits; decides between equally good clusters.
        first: the number of the first own node among the nodes of all processes.
        together: lets nodes that cannot join a neighbour's cluster join each other: those with the
            same best cluster, and those without neighbours.

    Returns:
        The number of nodes that moved.
    """
    increment_version((label, room))
    return kernels.cluster_nodes_(*graph.arrays(), label, room, key, first, together)


def contract_clusters(
    graph: WeightedGraph, label: Tensor, start: Tensor, member: Tensor | None, clusters: range
) -> Tensor:
    """Returns the edges between ``clusters``, [x, 3] int32: cluster, other cluster, weight.

    Args:
        label: [n + ghosts] int32, the cluster of each node.
        start: [clusters + 1] int64, where the own nodes of each cluster begin in ``member``.
        member: [n] int32, the own nodes by cluster; None if they are in that order.
    """
    return kernels.contract_clusters(*graph.arrays(), label, start, member, clusters.start, clusters.stop)


def improve_parts(graph: WeightedGraph, part: Tensor, room: Tensor, limit: Tensor, key: int) -> None:
    """Moves nodes out of parts that exceed a limit, then lowers the cut by moves in order of gain
    (Fiduccia and Mattheyses 1982). Ghosts stay in their parts. If the gain table would take much
    more memory than the edges, nodes move one by one to the part with most of their edges.

    Args:
        part: [n + ghosts] int32, written for own nodes.
        room: [parts, k] int64, how much each part may still grow, negative beyond the limit;
            updated.
        limit: [k] int64, the limits, by which excess is measured.
        key: signed 64 bits, the key of the random choices.
    """
    unit = torch.where(limit > 0, 1 / limit.clamp(min=1).double(), 0.0)
    increment_version((part, room))
    kernels.improve_parts_(*graph.arrays(), part, room, unit, key)


def solve_partition(graph: WeightedGraph, parts: int, limit: Tensor, key: int) -> SolvedPartition:
    """Cuts a graph that one process holds into parts, by the whole multilevel scheme. ``limit``:
    [k] int64, the largest weights of a part. ``key``: signed 64 bits, of the random choices."""
    return SolvedPartition(*kernels.solve_partition(*graph.arrays(), parts, limit, key))


# Neighbour lists ##################################################################################


class MergedLists(NamedTuple):
    """Adjacency lists in which each neighbour occurs once."""

    indptr: Tensor  # [n + 1] int64
    ids: Tensor  # [e], ascending in each list
    weight: Tensor  # [e] int32; empty where all edges weigh ``uniform``
    uniform: int  # the weight of every edge, 0 where they differ


def append_neighbours(
    rows: Tensor, first: int, cursor: Tensor, ids: Tensor, weight: Tensor | None = None
) -> None:
    """Appends edges to the adjacency lists of the nodes from ``first`` on.

    Args:
        rows: [n, 2] or, with weights, [n, 3] int32 or int64: node, neighbour and weight.
        cursor: [nodes] int64, the position of the next edge of each list; advanced.
        ids: [e] int32 or int64 neighbours, written to.
        weight: [e] int32, written to.
    """
    increment_version((cursor, ids) if weight is None else (cursor, ids, weight))
    if not kernels.append_neighbours_(rows, first, cursor, ids, weight):
        raise IndexError(f"an edge has no place in the {cursor.numel()} lists from node {first} on")


def merge_neighbours(
    indptr: Tensor, ids: Tensor, weight: Tensor | None = None, first: int = 0
) -> MergedLists:
    """Merges edges of a node to the same neighbour, and drops self loops.

    Args:
        indptr: [n + 1] int64.
        ids: [e] int32 or int64 neighbours; sorted in place.
        weight: [e] int32; None for 1 each. Sums end at 2**31 - 1.
        first: the id of the first node.
    """
    increment_version((ids,) if weight is None else (ids, weight))
    return MergedLists(*kernels.merge_neighbours(indptr, ids, weight, first))


def number_ghosts(ids: Tensor, own: range, total: int) -> tuple[Tensor, Tensor]:
    """Numbers nodes: own nodes first, then the others, the ghosts, in ascending order. Returns the
    ids of the ghosts, and [e] int32, the number of each of ``ids`` [e] int32 or int64 below
    ``total``."""
    check_range("ids", ids, max(total, 1))
    local = torch.empty(ids.numel(), dtype=torch.int32)
    return kernels.number_ghosts_(ids, own.start, len(own), total, local), local
