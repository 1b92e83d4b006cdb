"""The partition of the coarsest graph, which every rank gathers and cuts by itself."""

from __future__ import annotations

from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import MessageKind
from pyg_batchgnn.ops import fold_key
from pyg_batchgnn.partition.multilevel.gather import gather_graph
from pyg_batchgnn.partition.multilevel.rank_graph import RankGraph


def cut_coarsest(graph: RankGraph, parts: int, limit: Tensor, key: int) -> Tensor:
    """Returns the parts of this rank's nodes, [n] int32. Collective.

    Every rank cuts the whole graph with a key of its own. The best partition is taken: the one with
    the least excess over the limits, and among these the one that cuts the least.
    """
    comm = graph.comm
    whole = graph.lists if comm.size == 1 else gather_graph(graph)
    mine = ops.solve_partition(whole, parts, limit, ops.to_signed(fold_key(key, comm.rank)))
    found = comm.all_gather_json([mine.excess, mine.cut])
    best = min(range(comm.size), key=lambda rank: (*found[rank], rank))
    part = comm.broadcast(mine.part, best, MessageKind.PARTITION)
    return part[graph.first : graph.first + graph.lists.num_nodes].clone()
