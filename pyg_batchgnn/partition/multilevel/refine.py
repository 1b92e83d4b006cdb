"""Refinement over ranks: size-constrained label propagation in keyed rounds that keep the
balance."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops import NodeVisit, fold_key
from pyg_batchgnn.partition.add_rows import add_rows
from pyg_batchgnn.partition.multilevel.rank_graph import RankGraph

#: Every node is visited at most PASSES times. A round takes one of SHARES of a rank's
#: nodes, so that neighbours on two ranks seldom move at the same time.
PASSES, SHARES = 6, 2
#: A pass that lowers the cut by less than this share of what passes have gained is the last.
_ENOUGH = 0.02


def refine(graph: RankGraph, part: Tensor, limit: Tensor, parts: int, key: int) -> Tensor:
    """Returns better parts of this rank's nodes, [n] int32. Collective.

    Ranks move their nodes at the same time. Each may fill an equal part of the room that a part
    has left, and empties an equal part of what it has too much.

    Args:
        graph: the graph.
        part: [n] int32, the parts of this rank's nodes.
        limit: [k] int64, the largest weights of a part.
        parts: the number of parts.
        key: the key of the random choices.
    """
    comm, nodes = graph.comm, graph.lists.num_nodes
    known = torch.empty(graph.lists.num_all, dtype=part.dtype)
    known[:nodes] = part
    room = limit - _refresh_and_sum(graph, known, _load(graph, part, parts))
    total = 0
    for number in range(PASSES):
        gained = 0
        for share in range(SHARES):
            visit = NodeVisit(ops.to_signed(fold_key(key, number)), graph.first, share, SHARES)
            before = torch.div(room, comm.size, rounding_mode="floor")
            own = before.clone()
            if bool((room < 0).any()):
                ops.balance_parts(graph.lists, known, own, limit)
            fell = ops.move_greedily(graph.lists, known, own, visit)
            change = torch.cat([(own - before).flatten(), torch.tensor([fell])])
            change = _refresh_and_sum(graph, known, change)
            room += change[:-1].view(room.shape)
            gained += int(change[-1])
        total += gained
        if gained <= _ENOUGH * total:
            break
    return known[:nodes].clone()


def _refresh_and_sum(graph: RankGraph, known: Tensor, numbers: Tensor) -> Tensor:
    """Refreshes the parts of ghosts [n + ghosts] int32, and returns the sum over ranks of other
    numbers, int64 of any shape, in the same exchange. Collective."""
    own = numbers.flatten().view(torch.int32)
    told = graph.refresh_and_tell(known, [own] * graph.comm.size)
    return torch.stack(told).view(torch.int64).sum(0).view(numbers.shape)


def _load(graph: RankGraph, part: Tensor, parts: int) -> Tensor:
    """Returns the weights of this rank's nodes by part, [parts, k] int64."""
    load = torch.zeros(parts, graph.lists.node_weight.size(1), dtype=torch.int64)
    return add_rows(load, part, graph.lists.node_weight.to(torch.int64))
