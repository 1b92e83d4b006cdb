"""The multilevel scheme: coarsen, cut, and refine, over ranks."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import MessageKind
from pyg_batchgnn.ops import fold_key
from pyg_batchgnn.partition.limits import Balance
from pyg_batchgnn.partition.move import add_rows
from pyg_batchgnn.partition.multilevel.contract import CoarseLevel, contract, find_clusters
from pyg_batchgnn.partition.multilevel.rank_graph import RankGraph, gather_graph
from pyg_batchgnn.partition.release import release_memory

#: A coarse graph is gathered if it has at most 1 / _GATHERED of a rank's share of the whole graph's
#: entries, or FEW. Cutting it takes several times its memory.
_GATHERED, FEW = 8, 1 << 20
_CLUSTERS = 32  # A cluster has at most 1 / _CLUSTERS of a part's mean weight.


def cut_by_levels(graph: RankGraph, balance: Balance, key: int) -> Tensor:
    """Returns [n] int32, the parts of this rank's nodes. Collective. Coarsens the graph, cuts the
    coarsest one, and refines the cut on the way back."""
    levels = _coarsen(graph, balance, key)
    coarsest = levels[-1].graph if levels else graph
    found = cut_coarsest(coarsest, balance.parts, balance.limit, fold_key(key, -1))
    for depth in range(len(levels) - 1, -1, -1):
        finer = levels[depth - 1].graph if depth else graph
        found = levels.pop().project(found)
        found = refine(finer, found, balance.limit, balance.parts, fold_key(key, -2 - depth))
    return found


def _coarsen(graph: RankGraph, balance: Balance, key: int) -> list[CoarseLevel]:
    """Returns coarser and coarser graphs, the last one small enough for one rank. Collective. With
    several ranks the graph itself is never gathered."""
    comm, levels = graph.comm, list[CoarseLevel]()
    if comm.size == 1:
        return levels
    share = graph.total_entries // comm.size
    most = (balance.total // (_CLUSTERS * balance.parts)).clamp(min=1)
    now, edges = graph, share * comm.size
    while not levels or edges > max(share // _GATHERED, FEW):
        clusters = find_clusters(now, most, fold_key(key, len(levels)))
        release_memory()
        level = contract(now, clusters)
        release_memory()
        levels.append(level)
        stalled = level.graph.total > 0.95 * now.total  # keeps nearly all nodes
        now, edges = level.graph, level.graph.total_entries
        if stalled:
            break
    return levels


#: At least TRIES ranks cut the coarsest graph; more, while they look at no more than ENTRIES of its
#: entries together. More tries on a large graph seldom find a better partition, and on shared cores
#: each takes time from the others.
TRIES, ENTRIES = 2, 1 << 18
_QUALITY = 4  # int32 words of a partition's excess and cut


def cut_coarsest(graph: RankGraph, parts: int, limit: Tensor, key: int) -> Tensor:
    """Returns [n] int32, the parts of this rank's nodes. Collective. The first ranks cut the whole
    graph, each with its own key. The best result has the least excess, then the least cut."""
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


#: There are ROUNDS rounds, and up to MOST while each lowers the excess over the limits.
ROUNDS, MOST = 2, 8


def refine(graph: RankGraph, part: Tensor, limit: Tensor, parts: int, key: int) -> Tensor:
    """Returns [n] int32, better parts of this rank's nodes. Collective. All ranks move their nodes
    at the same time, in order of gain, while the nodes of others stand still. Each may fill an
    equal share of a part's room, and removes an equal share of its excess. ``limit``: [k] int64,
    the largest weights of a part."""
    comm, nodes = graph.comm, graph.lists.num_nodes
    known = torch.empty(graph.lists.num_all, dtype=part.dtype)
    known[:nodes] = part
    room = limit - _refresh_and_sum(graph, known, _load(graph, part, parts))
    for number in range(MOST):
        excess = _excess(room)
        before = torch.div(room, comm.size, rounding_mode="floor")
        own, drawn = before.clone(), ops.to_signed(fold_key(fold_key(key, number), comm.rank))
        ops.improve_parts(graph.lists, known, own, limit, drawn)
        room += _refresh_and_sum(graph, known, own - before)
        if number + 1 >= ROUNDS and not 0 < _excess(room) < excess:
            break
    return known[:nodes].clone()


def _excess(room: Tensor) -> int:
    return -int(room.clamp(max=0).sum())


def _refresh_and_sum(graph: RankGraph, known: Tensor, numbers: Tensor) -> Tensor:
    """Refreshes the parts of ghosts in ``known``, [n + ghosts] int32, and returns the sum of all
    ranks' ``numbers``, int64. Collective."""
    own = numbers.flatten().view(torch.int32)
    told = graph.refresh_and_tell(known, [own] * graph.comm.size)
    return torch.stack(told).view(torch.int64).sum(0).view(numbers.shape)


def _load(graph: RankGraph, part: Tensor, parts: int) -> Tensor:
    load = torch.zeros(parts, graph.lists.node_weight.size(1), dtype=torch.int64)
    return add_rows(load, part, graph.lists.node_weight.to(torch.int64))
