"""Gathers a graph that ranks share."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.comm import MessageKind
from pyg_batchgnn.ops import WeightedGraph
from pyg_batchgnn.partition.multilevel.rank_graph import RankGraph


def gather_graph(graph: RankGraph, on: range) -> WeightedGraph:
    """Gathers the whole graph. Collective.

    Args:
        graph: the graph.
        on: the ranks that get it. The others get a graph without nodes.
    """
    lists, comm = graph.lists, graph.comm

    def gather(rows: Tensor) -> Tensor:
        sent = [rows if rank in on else rows[:0] for rank in range(comm.size)]
        return comm.exchange(sent, None, MessageKind.PARTITION).rows

    degree = gather(lists.indptr.diff())
    ids = gather(graph.ids().to(torch.int32)[lists.indices.to(torch.int64)])
    node_weight = gather(lists.node_weight)
    edge_weight = None if lists.edge_weight is None else gather(lists.edge_weight)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)])
    return WeightedGraph(indptr, ids, node_weight, edge_weight)
