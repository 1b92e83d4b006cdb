"""Operators of the multilevel partitioner: undirected graphs with weights, their clusters and their
parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from pyg_batchgnn.ops.checks import check_ids, check_indptr, check_range, check_vector
from pyg_batchgnn.ops.library import kernels


@dataclass(frozen=True, eq=False)
class WeightedGraph:
    """The neighbours of a process's own nodes in an undirected graph with weights.

    Attributes:
        indptr: [n + 1] int64, where each own node's neighbours begin.
        indices: [e] int32, own nodes [0, n), then ghosts [n, n + ghosts): nodes of other processes.
        node_weight: [n, k] int32, not negative, the weights of each own node.
        edge_weight: [e] int32, positive; None where every edge weighs as much as any other.
    """

    indptr: Tensor
    indices: Tensor
    node_weight: Tensor
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

    def check(self) -> None:
        check_vector("indices", self.indices, (torch.int32,))
        check_indptr("indptr", self.indptr, self.num_edges)
        check_ids("indices", self.indices, self.num_all)
        _check_table("node_weight", self.node_weight, torch.int32, self.num_nodes)
        if self.edge_weight is not None:
            check_vector("edge_weight", self.edge_weight, (torch.int32,))
            if self.edge_weight.numel() != self.num_edges:
                raise ValueError(f"{self.edge_weight.numel()} weights for {self.num_edges} edges")

    def arrays(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """Returns the arrays in the order in which kernels take them, after checking them."""
        self.check()
        return self.indptr, self.indices, self.edge_weight, self.node_weight


class SolvedPartition(NamedTuple):
    """A partition of a graph in one process.

    Attributes:
        part: [n] int32.
        cut: the weight of the edges that join different parts.
        excess: by how much parts exceed their limits, in limits, summed over parts and constraints.
    """

    part: Tensor
    cut: int
    excess: float


def cluster_nodes(
    graph: WeightedGraph, label: Tensor, room: Tensor, *, key: int, first: int = 0, together: bool = False
) -> int:
    """Moves each own node to the cluster with room that most of its edges lead to.

    Args:
        label: [n + ghosts] int32, the cluster of each node in [0, clusters); written for own nodes.
        room: [clusters, k] int64, what each cluster may still grow by; written to.
        key: signed 64 bits; decides between equally good clusters.
        first: the number of the first own node among the nodes of all processes.
        together: lets nodes that can join no neighbour's cluster join each other: those with the
            same best cluster, and those without neighbours.

    Returns:
        The number of nodes that moved.
    """
    _check_groups(graph, "label", label, room)
    increment_version((label, room))
    return kernels.cluster_nodes_(*graph.arrays(), label, room, key, first, together)


def contract_clusters(
    graph: WeightedGraph, label: Tensor, start: Tensor, member: Tensor | None, clusters: range
) -> Tensor:
    """Returns the edges between clusters, [x, 3] int32: cluster, other cluster, weight.

    Args:
        label: [n + ghosts] int32, the cluster of each node.
        start: [clusters + 1] int64, where the own nodes of each cluster begin in ``member``.
        member: [n] int32, the own nodes by cluster; None where they are in that order.
        clusters: the clusters whose edges are wanted.
    """
    check_vector("label", label, (torch.int32,))
    check_indptr("start", start, graph.num_nodes)
    count = start.numel() - 1
    if label.numel() != graph.num_all or not 0 <= clusters.start <= clusters.stop <= count:
        raise ValueError(f"{label.numel()} labels and clusters {clusters} do not fit the graph")
    check_range("label", label, max(count, 1), "clusters")
    if member is not None:
        check_vector("member", member, (torch.int32,))
        check_range("member", member, max(graph.num_nodes, 1))
        if member.numel() != graph.num_nodes:
            raise ValueError(f"{member.numel()} members for {graph.num_nodes} nodes")
    return kernels.contract_clusters(*graph.arrays(), label, start, member, clusters.start, clusters.stop)


def improve_parts(graph: WeightedGraph, part: Tensor, room: Tensor, limit: Tensor, key: int) -> None:
    """Moves nodes out of parts that exceed a limit, then lowers the cut by moves in order of gain
    (Fiduccia and Mattheyses 1982). Ghosts stay in their parts.

    Where the table of that method would take much more memory than the edges, nodes move one by one
    to the part that most of their edges lead to.

    Args:
        part: [n + ghosts] int32, written for own nodes.
        room: [parts, k] int64, what each part may still grow by, negative where a limit is
            exceeded; written to.
        limit: [k] int64, the limits, by which excess is measured.
        key: signed 64 bits, the key of the random choices.
    """
    _check_groups(graph, "part", part, room)
    _check_limit(graph, limit)
    unit = torch.where(limit > 0, 1 / limit.clamp(min=1).double(), 0.0)
    increment_version((part, room))
    kernels.improve_parts_(*graph.arrays(), part, room, unit, key)


def solve_partition(graph: WeightedGraph, parts: int, limit: Tensor, key: int) -> SolvedPartition:
    """Cuts a graph that one process holds into parts: the whole multilevel scheme.

    Args:
        limit: [k] int64, the largest weights of a part.
        key: signed 64 bits, the key of the random choices.
    """
    if parts < 1 or graph.num_ghosts:
        raise ValueError(f"parts must be at least 1 and ghosts none, not {parts} and {graph.num_ghosts}")
    _check_limit(graph, limit)
    return SolvedPartition(*kernels.solve_partition(*graph.arrays(), parts, limit, key))


def _check_groups(graph: WeightedGraph, name: str, group: Tensor, room: Tensor) -> None:
    check_vector(name, group, (torch.int32,))
    if group.numel() != graph.num_all:
        raise ValueError(f"{name} has {group.numel()} entries for {graph.num_all} nodes and ghosts")
    _check_table("room", room, torch.int64)
    if room.size(1) != graph.node_weight.size(1):
        raise ValueError(f"room has {room.size(1)} columns for {graph.node_weight.size(1)} weights")
    check_range(name, group, max(room.size(0), 1), "groups")


def _check_limit(graph: WeightedGraph, limit: Tensor) -> None:
    check_vector("limit", limit, (torch.int64,))
    if limit.numel() != graph.node_weight.size(1):
        raise ValueError(f"{limit.numel()} limits for {graph.node_weight.size(1)} weights")


def _check_table(name: str, table: Tensor, dtype: torch.dtype, rows: int | None = None) -> None:
    fits = table.dim() == 2 and table.dtype == dtype and table.is_contiguous()
    if not fits or (rows is not None and table.size(0) != rows):
        wanted = "rows" if rows is None else rows
        raise ValueError(
            f"{name} must be contiguous {dtype} of shape [{wanted}, k], got {table.dtype} {[*table.shape]}"
        )


# Neighbour lists ##################################################################################


class MergedLists(NamedTuple):
    """The adjacency lists in which each neighbour occurs once.

    Attributes:
        indptr: [n + 1] int64.
        ids: [e], ascending in each list.
        weight: [e] int32; empty where all edges weigh ``uniform``.
        uniform: the weight of every edge, 0 where they differ.
    """

    indptr: Tensor
    ids: Tensor
    weight: Tensor
    uniform: int


def append_neighbours(
    rows: Tensor, first: int, cursor: Tensor, ids: Tensor, weight: Tensor | None = None
) -> None:
    """Appends edges to the adjacency lists of the nodes from ``first`` on.

    Args:
        rows: [n, 2] or, with weights, [n, 3] int32 or int64: node, neighbour and weight.
        cursor: [nodes] int64, the position of the next edge of each list; advanced.
        ids: [e] int32 or int64 neighbours, written to.
        weight: [e] int32, written to.

    Raises:
        IndexError: an edge does not belong to these lists, or there is no place for it.
    """
    columns = 2 if weight is None else 3
    if rows.dim() != 2 or rows.size(1) != columns or not rows.is_contiguous():
        raise ValueError(f"rows must be contiguous of shape [n, {columns}], got {[*rows.shape]}")
    check_vector("rows", rows.view(-1))
    check_vector("cursor", cursor, (torch.int64,))
    check_range("cursor", cursor, ids.numel() + 1, "places")
    check_vector("ids", ids)
    written = (cursor, ids) if weight is None else (cursor, ids, weight)
    if weight is not None:
        check_vector("weight", weight, (torch.int32,))
        if weight.numel() != ids.numel():
            raise ValueError(f"{weight.numel()} weights for {ids.numel()} neighbours")
    increment_version(written)
    if not kernels.append_neighbours_(rows, first, cursor, ids, weight):
        raise IndexError(f"an edge has no place in the {cursor.numel()} lists from node {first} on")


def merge_neighbours(
    indptr: Tensor, ids: Tensor, weight: Tensor | None = None, first: int = 0
) -> MergedLists:
    """Merges the edges of each list to the same neighbour, and drops those to the node itself.

    Args:
        indptr: [n + 1] int64.
        ids: [e] int32 or int64 neighbours; sorted in place.
        weight: [e] int32; 1 each if it is None. Sums end at 2**31 - 1.
    """
    check_vector("ids", ids)
    check_indptr("indptr", indptr, ids.numel())
    written = [ids]
    if weight is not None:
        check_vector("weight", weight, (torch.int32,))
        if weight.numel() != ids.numel():
            raise ValueError(f"{weight.numel()} weights for {ids.numel()} neighbours")
        written.append(weight)
    increment_version(written)
    return MergedLists(*kernels.merge_neighbours(indptr, ids, weight, first))


def number_ghosts(ids: Tensor, own: range, total: int) -> tuple[Tensor, Tensor]:
    """Numbers nodes: own nodes first, then the others, the ghosts, in ascending order.

    Args:
        ids: [e] int32 or int64 ids in [0, total).

    Returns:
        The ids of the ghosts, ascending; and [e] int32, the number of each entry.
    """
    check_vector("ids", ids)
    check_range("ids", ids, max(total, 1))
    local = torch.empty(ids.numel(), dtype=torch.int32)
    return kernels.number_ghosts_(ids, own.start, len(own), total, local), local
