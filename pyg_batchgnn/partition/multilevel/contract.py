"""The graph of clusters over ranks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import MessageKind
from pyg_batchgnn.partition.move import pull, send
from pyg_batchgnn.partition.multilevel.cluster import Clusters
from pyg_batchgnn.partition.multilevel.coarse_lists import gather_lists
from pyg_batchgnn.partition.multilevel.rank_graph import RankGraph


@dataclass(frozen=True, eq=False)
class CoarseLevel:
    """A coarse graph and the way back to the finer one.

    Attributes:
        graph: the coarse graph.
        node: [m], the distinct coarse nodes of this rank's finer nodes.
        row: [n] int32, the row in ``node`` of each of this rank's finer nodes.
    """

    graph: RankGraph
    node: Tensor
    row: Tensor

    def project(self, values: Tensor) -> Tensor:
        """Returns values of own coarse nodes for this rank's finer nodes, [n]. Collective."""
        graph = self.graph
        return pull(graph.comm, graph.remote(values), self.node, most=graph.total)[self.row.to(torch.int64)]


def contract(graph: RankGraph, clusters: Clusters) -> CoarseLevel:
    """Returns the graph whose nodes are the clusters. Collective.

    It has at most half as many entries as the finer graph on each rank, or a million: the lightest
    edges are dropped.
    """
    comm, nodes = graph.comm, graph.lists.num_nodes
    names, row = ops.number_ghosts(clusters.label[:nodes].contiguous(), range(0), graph.total)
    used = torch.zeros(nodes, dtype=torch.bool)
    used[send(comm, names, graph.group(names)).rows.to(torch.int64) - graph.first] = True
    counts = comm.all_gather(used.sum().view(1), MessageKind.PARTITION).rows
    bounds = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    number = (used.cumsum(0) - 1 + bounds[comm.rank]).to(graph.id_dtype)
    coarse = pull(comm, graph.remote(number), names, most=graph.total)
    lists = gather_lists(graph, graph.with_ghosts(coarse[row.to(torch.int64)]), bounds)
    return CoarseLevel(RankGraph.of(comm, bounds, lists, clusters.weight[used]), coarse, row)
