"""The policies that need no look at the neighbours: by hash, and by ranges of original ids."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.partition.hashing import random_owner
from pyg_batchgnn.partition.reading import ReadingSlice

#: The number of nodes hashed at a time.
_NODES = 1 << 20


def random_owners(part: ReadingSlice, parts: int, seed: int) -> Tensor:
    """Returns owners by hash, [n] int32."""
    owner = torch.empty(part.num_nodes, dtype=torch.int32)
    for piece, node in zip(owner.split(_NODES), part.node().split(_NODES), strict=True):
        piece.copy_(random_owner(node, parts, seed))
    return owner


def contiguous_owners(comm: Communicator, part: ReadingSlice, parts: int) -> Tensor:
    """Returns owners that are ranges of original ids, [n] int32.

    The ranges have equal sums of nodes and edges, as nearly as ranges can.

    A node belongs to the part in which the middle of its own weight (1 and its in-edges) lies, when
    all nodes lie side by side in order of their ids.
    """
    weight = part.in_edges.degrees + 1
    end = weight.cumsum(0)
    mine = end[-1:] if end.numel() else torch.zeros(1, dtype=torch.int64)
    sums = comm.all_gather(mine, MessageKind.PARTITION).rows
    middle_twice = 2 * (end + sums[: comm.rank].sum()) - weight
    # floor(parts * middle / total) without products beyond 64 bits
    total_twice = 2 * int(sums.sum())
    bounds = torch.tensor([part * total_twice // parts for part in range(1, parts)], dtype=torch.int64)
    return torch.bucketize(middle_twice, bounds, right=True).to(torch.int32)
