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
#: The int32 words of the excess and the cut of a partition.
_QUALITY = 4


def cut_coarsest(graph: RankGraph, parts: int, limit: Tensor, key: int) -> Tensor:
    """Returns the parts of this rank's nodes, [n] int32. Collective.

    The first ranks cut the whole graph, each with a key of its own. The best partition is taken:
    the one with the least excess over the limits, and among these the one that cuts the least.
    """
    comm = graph.comm
    tries = min(max(TRIES, ENTRIES // max(graph.total_entries, 1)), comm.size)
    whole = gather_graph(graph, range(tries))
    sent = [torch.empty(0, dtype=torch.int32)] * comm.size
    if comm.rank < tries:
        mine = ops.solve_partition(whole, parts, limit, ops.to_signed(fold_key(key, comm.rank)))
        quality = torch.tensor([mine.excess, mine.cut], dtype=torch.float64).view(torch.int32)
        of_ranks = mine.part.split(graph.bounds.diff().tolist())
        sent = [torch.cat([quality, part]) for part in of_ranks]
    found = comm.exchange(sent, None, MessageKind.PARTITION).split()[:tries]
    qualities = torch.cat([one[:_QUALITY] for one in found]).view(torch.float64).view(-1, 2).tolist()
    best = qualities.index(min(qualities))
    return found[best][_QUALITY:].clone()
