"""Refinement over ranks: each rank moves its nodes in order of gain, while those of the others
stand still."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops import fold_key
from pyg_batchgnn.partition.add_rows import add_rows
from pyg_batchgnn.partition.multilevel.rank_graph import RankGraph

#: There are ROUNDS rounds, and at most MOST while each lowers what parts have too much.
ROUNDS, MOST = 2, 8


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
    """Returns what parts have too much of all weights together, given their room [parts, k]."""
    return -int(room.clamp(max=0).sum())


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
