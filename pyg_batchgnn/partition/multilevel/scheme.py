"""The multilevel scheme over ranks."""

from __future__ import annotations

from torch import Tensor

from pyg_batchgnn.ops import fold_key
from pyg_batchgnn.partition.goal import Goal
from pyg_batchgnn.partition.multilevel.cluster import find_clusters
from pyg_batchgnn.partition.multilevel.coarsest import cut_coarsest
from pyg_batchgnn.partition.multilevel.contract import CoarseLevel, contract
from pyg_batchgnn.partition.multilevel.rank_graph import RankGraph
from pyg_batchgnn.partition.multilevel.refine import refine
from pyg_batchgnn.partition.release import release_memory

#: A coarse graph is gathered if it has at most one of _GATHERED of a rank's share of the entries of
#: the whole graph, or FEW of them. Cutting it takes several times its memory.
_GATHERED, FEW = 8, 1 << 20
#: No cluster has more than one of _CLUSTERS of a part's mean weight.
_CLUSTERS = 32
#: Coarsening ends with a level that keeps more than this share of the nodes.
_STALLED = 0.95


def cut_by_levels(graph: RankGraph, goal: Goal, key: int) -> Tensor:
    """Coarsens, cuts, and refines on the way back. Collective.

    Returns:
        [n] int32, the parts of this rank's nodes.
    """
    levels = _coarsen(graph, goal, key)
    coarsest = levels[-1].graph if levels else graph
    found = cut_coarsest(coarsest, goal.parts, goal.limit, fold_key(key, -1))
    for depth in range(len(levels) - 1, -1, -1):
        finer = levels[depth - 1].graph if depth else graph
        found = levels.pop().project(found)
        found = refine(finer, found, goal.limit, goal.parts, fold_key(key, -2 - depth))
    return found


def _coarsen(graph: RankGraph, goal: Goal, key: int) -> list[CoarseLevel]:
    """Returns coarser and coarser graphs, the last of which is small enough for one rank.
    Collective.

    The graph itself is never gathered where there are several ranks.
    """
    comm, levels = graph.comm, list[CoarseLevel]()
    if comm.size == 1:
        return levels
    share = graph.total_entries // comm.size
    most = (goal.total // (_CLUSTERS * goal.parts)).clamp(min=1)
    now, edges = graph, share * comm.size
    while not levels or edges > max(share // _GATHERED, FEW):
        clusters = find_clusters(now, most, fold_key(key, len(levels)))
        release_memory()
        level = contract(now, clusters)
        release_memory()
        levels.append(level)
        stalled = level.graph.total > _STALLED * now.total
        now, edges = level.graph, level.graph.total_entries
        if stalled:
            break
    return levels
