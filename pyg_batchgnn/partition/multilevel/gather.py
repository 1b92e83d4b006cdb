"""Gathers a graph that ranks share."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.comm import MessageKind
from pyg_batchgnn.ops import WeightedGraph
from pyg_batchgnn.partition.multilevel.rank_graph import RankGraph


def gather_graph(graph: RankGraph, on: int | None = None) -> WeightedGraph:
    """Returns the whole graph. Collective.

    Args:
        graph: the graph.
        on: the only rank that gets it; the others get a graph without nodes. All ranks get it if it
            is None.
    """
    lists, comm = graph.lists, graph.comm

    def gather(rows: Tensor) -> Tensor:
        if on is None:
            return comm.all_gather(rows, MessageKind.PARTITION).rows
        counts = [len(rows) if rank == on else 0 for rank in range(comm.size)]
        return comm.exchange(rows.contiguous(), counts, MessageKind.PARTITION).rows

    degree = gather(lists.indptr.diff())
    ids = gather(graph.ids().to(torch.int32)[lists.indices.to(torch.int64)])
    node_weight = gather(lists.node_weight)
    edge_weight = None if lists.edge_weight is None else gather(lists.edge_weight)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)])
    return WeightedGraph(indptr, ids, node_weight, edge_weight)
