"""Gathers a graph that ranks share."""

from __future__ import annotations

import torch

from pyg_batchgnn.comm import MessageKind
from pyg_batchgnn.ops import WeightedGraph
from pyg_batchgnn.partition.multilevel.rank_graph import RankGraph


def gather_graph(graph: RankGraph, on: range) -> WeightedGraph:
    """Gathers the whole graph, in one exchange. Collective.

    Args:
        graph: the graph.
        on: the ranks that get it. The others get a graph without nodes.
    """
    lists, comm = graph.lists, graph.comm
    if comm.size == 1:
        return lists
    ids = graph.ids().to(torch.int32)[lists.indices.to(torch.int64)]
    weights = [] if lists.edge_weight is None else [lists.edge_weight]
    # All are int32: the degrees, the ids of the neighbours, and the weights.
    own = torch.cat([lists.indptr.diff().to(torch.int32), ids, lists.node_weight.flatten(), *weights])
    del ids
    sent = [own if rank in on else own[:0] for rank in range(comm.size)]
    came = comm.exchange(sent, None, MessageKind.PARTITION).split()
    del own, sent
    loads, each = lists.node_weight.size(1), len(weights)
    sizes = [
        [nodes, edges, nodes * loads, *[edges] * each] if comm.rank in on else [0] * (3 + each)
        for nodes, edges in zip(graph.bounds.diff().tolist(), graph.entries, strict=True)
    ]
    fields = zip(*(rows.split(of) for rows, of in zip(came, sizes, strict=True)), strict=True)
    degree, ids, node_weight, *weights = (torch.cat(of_ranks) for of_ranks in fields)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)])
    return WeightedGraph(indptr, ids, node_weight.view(-1, loads), weights[0] if weights else None)
