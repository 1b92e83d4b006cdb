"""The partition of the coarsest graph, which few ranks gather and cut, each by itself."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import MessageKind
from pyg_batchgnn.ops import fold_key
from pyg_batchgnn.partition.multilevel.gather import gather_graph
from pyg_batchgnn.partition.multilevel.rank_graph import RankGraph

#: At least TRIES ranks cut the coarsest graph, and more while all of them together look at no more
#: than ENTRIES of its entries. More tries on a large graph seldom find a better partition, and
#: where ranks share cores each takes time from the others.
TRIES, ENTRIES = 2, 1 << 18


def cut_coarsest(graph: RankGraph, parts: int, limit: Tensor, key: int) -> Tensor:
    """Returns the parts of this rank's nodes, [n] int32. Collective.

    The first ranks cut the whole graph, each with a key of its own. The best partition is taken:
    the one with the least excess over the limits, and among these the one that cuts the least.
    """
    comm = graph.comm
    entries = comm.sum(graph.lists.num_edges)
    tries = min(max(TRIES, ENTRIES // max(entries, 1)), comm.size)
    whole = graph.lists if comm.size == 1 else gather_graph(graph, range(tries))
    part, found = torch.empty(graph.total, dtype=torch.int32), None
    if comm.rank < tries:
        mine = ops.solve_partition(whole, parts, limit, ops.to_signed(fold_key(key, comm.rank)))
        part, found = mine.part, (mine.excess, mine.cut, comm.rank)
    _, _, best = min(one for one in comm.all_gather_json(found) if one is not None)
    comm.broadcast(part, best, MessageKind.PARTITION)
    return part[graph.first : graph.first + graph.lists.num_nodes].clone()
