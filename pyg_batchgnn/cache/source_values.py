"""The halo nodes of a process."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops import OwnedEdges

#: Edges that are looked through together.
_EDGES = 1 << 22


def halo_nodes(own: OwnedEdges) -> Tensor:
    """Returns the ids of the sources that a process does not own, [h] int64, ascending."""
    found = [torch.empty(0, dtype=torch.int64)]
    for sources in own.in_edges.indices.split(_EDGES):
        row = sources.to(torch.int64) - own.first_node
        others = row[(row < 0) | (row >= own.node.numel())] + own.first_node
        found = [ops.unique_nodes([*found, others], own.num_nodes)[0]]
    return found[0]
