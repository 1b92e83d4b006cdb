"""Clusters over ranks, by size-constrained label propagation (Meyerhenke, Sanders and Schulz 2017).

A cluster has the id of a node. The rank of that node knows the cluster's weights. In each round
every rank moves some of its nodes. It may add to a cluster an equal part of the room that the
cluster has, so that no cluster outgrows its limit whatever the other ranks do.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops import WeightedGraph, fold_key
from pyg_batchgnn.partition.add_rows import add_rows
from pyg_batchgnn.partition.move import pull
from pyg_batchgnn.partition.multilevel.rank_graph import RankGraph

#: Every node is visited PASSES times.
PASSES = 3
#: A round takes the nodes of one of PIECES of a rank's edges, or of EDGES edges. Each neighbour may
#: be in a cluster of its own, so a round may take a hundred bytes for each edge.
PIECES, EDGES = 16, 1 << 20


@dataclass(frozen=True, eq=False)
class Clusters:
    """The clusters of the nodes.

    Attributes:
        label: [n + ghosts], the id of each node's cluster.
        weight: [n, k] int32, the weights of the clusters that have the ids of own nodes.
    """

    label: Tensor
    weight: Tensor


def find_clusters(graph: RankGraph, limit: Tensor, key: int) -> Clusters:
    """Returns clusters within limits. Collective.

    Args:
        graph: the graph.
        limit: [k] int64, the largest weights of a cluster of several nodes.
        key: the key of the random choices.
    """
    found = Clusters(graph.ids(), graph.lists.node_weight.clone())
    pieces = _pieces(graph)
    for number in range(PASSES):
        for nodes in pieces:
            _move(graph, found, limit, nodes, fold_key(key, number), together=number == PASSES - 1)
    return found


def _pieces(graph: RankGraph) -> list[range]:
    """Cuts this rank's nodes into ranges of nearly as many edges, as many on every rank."""
    indptr, edges = graph.lists.indptr, graph.lists.num_edges
    count = max(-(-every // max(EDGES, every // PIECES)) for every in graph.entries)
    marks = edges * torch.arange(count + 1) // max(count, 1)
    at = torch.searchsorted(indptr, marks).tolist()
    at[0], at[-1] = 0, graph.lists.num_nodes
    return [range(*ends) for ends in pairwise(at)] if count else [range(graph.lists.num_nodes)]


def _move(
    graph: RankGraph, found: Clusters, limit: Tensor, nodes: range, key: int, *, together: bool
) -> None:
    """Visits some of the nodes on every rank. Collective."""
    lists, others = _lists_of(graph, nodes)
    label = torch.cat([found.label[nodes.start : nodes.stop], found.label.index_select(0, others)])
    names, local = ops.number_ghosts(label, range(0), graph.total)
    before, room = local[: len(nodes)].clone(), _room_in(graph, found, limit, names)
    first = graph.first + nodes.start
    ops.cluster_nodes(lists, local, room, key=ops.to_signed(key), first=first, together=together)
    del room
    now = local[: len(nodes)]
    found.label[nodes.start : nodes.stop] = names[now]
    changed, grown = _growth(before, now, lists.node_weight, names.numel())
    names = names[changed]
    rows, counts = graph.group(names).sorted(torch.cat([names[:, None], grown.to(names.dtype)], dim=1))
    told = graph.refresh_and_tell(found.label, [one.flatten() for one in rows.split(counts)])
    changes = torch.cat(told).view(-1, rows.size(1))
    at = changes[:, 0].to(torch.int64) - graph.first
    add_rows(found.weight, at, changes[:, 1:].to(torch.int32))


def _room_in(graph: RankGraph, found: Clusters, limit: Tensor, names: Tensor) -> Tensor:
    """Returns this rank's part of the room that clusters have, [x, k] int64. Collective.

    It works in place: there are many clusters, and each has several weights.
    """
    room = pull(graph.comm, graph.remote(found.weight), names, most=graph.total).to(torch.int64)
    return room.neg_().add_(limit).div_(graph.comm.size, rounding_mode="floor")


def _growth(before: Tensor, now: Tensor, weight: Tensor, clusters: int) -> tuple[Tensor, Tensor]:
    """Returns the clusters that nodes left or joined, and by how much each grew, [x, k] int32.

    Args:
        before, now: [n] int32, the clusters of the nodes, in [0, clusters).
        weight: [n, k] int32, the weights of the nodes.
        clusters: the number of clusters.
    """
    moved = (before != now).nonzero().flatten()
    moving = weight[moved]
    changed, row = ops.number_ghosts(torch.cat([before[moved], now[moved]]), range(0), clusters)
    grown = torch.zeros(changed.numel(), weight.size(1), dtype=torch.int32)
    left, joined = row.view(2, len(moved))
    add_rows(grown, joined, moving)
    add_rows(grown, left, moving.neg_())
    return changed, grown


def _lists_of(graph: RankGraph, nodes: range) -> tuple[WeightedGraph, Tensor]:
    """Returns the lists of some of this rank's nodes, as a graph whose ghosts are all other nodes
    in them; and the ghosts, by their numbers in ``graph``."""
    lists = graph.lists
    if len(nodes) == lists.num_nodes:
        return lists, torch.arange(len(nodes), lists.num_all, dtype=torch.int32)
    begin, end = lists.indptr[[nodes.start, nodes.stop]].tolist()
    others, local = ops.number_ghosts(lists.indices[begin:end], nodes, lists.num_all)
    weight = None if lists.edge_weight is None else lists.edge_weight[begin:end]
    indptr = lists.indptr[nodes.start : nodes.stop + 1] - begin
    own = lists.node_weight[nodes.start : nodes.stop]
    return WeightedGraph(indptr, local, own, weight, others.numel()), others
