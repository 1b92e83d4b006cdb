"""Clusters over ranks, by size-constrained label propagation (Meyerhenke, Sanders and Schulz 2017).

A cluster has the id of a node. The rank of that node knows the cluster's weights. In each round
every rank moves a share of its nodes. It may add to a cluster an equal part of the room that the
cluster has, so that no cluster outgrows its limit whatever the other ranks do.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops import NodeVisit, fold_key
from pyg_batchgnn.partition.move import pull, send
from pyg_batchgnn.partition.multilevel.rank_graph import RankGraph

#: Every node is visited PASSES times. A round takes one of SHARES of a rank's nodes.
PASSES, SHARES = 3, 3


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
    rounds = PASSES * SHARES
    for number in range(rounds):
        visit = NodeVisit(
            ops.to_signed(fold_key(key, number // SHARES)), graph.first, number % SHARES, SHARES
        )
        _move(graph, found, limit, visit, together=number >= rounds - SHARES)
    return found


def _move(graph: RankGraph, found: Clusters, limit: Tensor, visit: NodeVisit, *, together: bool) -> None:
    """Visits a share of the nodes on every rank. Collective."""
    nodes, ranks = graph.lists.num_nodes, graph.comm.size
    names, local = ops.number_ghosts(found.label, range(0), graph.total)
    held = pull(graph.comm, graph.remote(found.weight), names)
    room = torch.div(limit - held, ranks, rounding_mode="floor")
    before = room.clone()
    ops.cluster_nodes(graph.lists, local, room, visit, together=together)
    found.label[:nodes] = names[local[:nodes].to(torch.int64)]
    grown = before - room
    changed = grown.any(dim=1)
    names, grown = names[changed], grown[changed].to(torch.int32)
    grouping = graph.group(names)
    at = send(graph.comm, names, grouping).rows.to(torch.int64) - graph.first
    found.weight.index_add_(0, at, send(graph.comm, grown, grouping).rows)
    graph.refresh(found.label)
