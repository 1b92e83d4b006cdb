"""The graph of clusters over ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import MessageKind
from pyg_batchgnn.partition.multilevel.cluster import Clusters
from pyg_batchgnn.partition.multilevel.coarse_lists import gather_lists
from pyg_batchgnn.partition.multilevel.rank_graph import Ghosts, RankGraph


@dataclass(frozen=True, eq=False)
class CoarseLevel:
    """A coarse graph and the way back to the finer one.

    Attributes:
        graph: the coarse graph.
        nodes: the distinct coarse nodes of this rank's finer nodes.
        row: [n] int32, the row in ``nodes`` of each of this rank's finer nodes.
    """

    graph: RankGraph
    nodes: Ghosts
    row: Tensor

    def project(self, values: Tensor) -> Tensor:
        """Returns values of own coarse nodes for this rank's finer nodes, [n]. Collective."""
        return self.nodes.pull(self.graph.comm, values)[self.row.to(torch.int64)]


def contract(graph: RankGraph, clusters: Clusters) -> CoarseLevel:
    """Returns the graph whose nodes are the clusters. Collective.

    It has at most half as many entries as the finer graph on each rank, or a million: the lightest
    edges are dropped.
    """
    comm, nodes = graph.comm, graph.lists.num_nodes
    names, row = ops.number_ghosts(clusters.label[:nodes].contiguous(), range(0), graph.total)
    found, _ = Ghosts.of(comm, names, graph.bounds, torch.empty(0, dtype=torch.int64))
    needed, used = found.needed.to(torch.int64), torch.zeros(nodes, dtype=torch.bool)
    used[needed] = True
    counts = comm.all_gather(used.sum().view(1), MessageKind.PARTITION).rows
    bounds = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    number = used.cumsum(0) - 1
    coarse = found.pull(comm, (number + bounds[comm.rank]).to(graph.id_dtype))
    coarse_nodes = replace(found, ids=coarse, needed=number[needed].to(torch.int32))
    del needed, number
    lists = gather_lists(graph, graph.with_ghosts(coarse[row.to(torch.int64)]), bounds)
    return CoarseLevel(RankGraph.of(comm, bounds, lists, clusters.weight[used]), coarse_nodes, row)
