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
    for number, name in enumerate(part.schema.node_types):
        own, kind = part.nodes_of(number), None if part.schema.num_types == 1 else name
        pieces = zip(
            owner[part.rows_of(number)].split(_NODES),
            torch.arange(own.start, own.stop).split(_NODES),
            strict=True,
        )
        for piece, node in pieces:
            piece.copy_(random_owner(node, parts, seed, kind))
    return owner


def contiguous_owners(comm: Communicator, part: ReadingSlice, parts: int) -> Tensor:
    """Returns owners that are ranges of the original ids of each type, [n] int32."""
    types = range(part.schema.num_types)
    return torch.cat([_even_ranges(comm, part.degrees(number) + 1, parts) for number in types])


def _even_ranges(comm: Communicator, weight: Tensor, parts: int) -> Tensor:
    """Returns owners of one type's nodes. The ranges have equal sums of nodes and in-edges, as
    nearly as ranges can.

    A node belongs to the part in which the middle of its own weight (1 and its in-edges) lies, when
    all nodes lie side by side in order of their ids.
    """
    end = weight.cumsum(0)
    mine = end[-1:] if end.numel() else torch.zeros(1, dtype=torch.int64)
    sums = comm.all_gather(mine, MessageKind.PARTITION).rows
    middle_twice = 2 * (end + sums[: comm.rank].sum()) - weight
    # floor(parts * middle / total) without products beyond 64 bits
    total_twice = 2 * int(sums.sum())
    bounds = torch.tensor([part * total_twice // parts for part in range(1, parts)], dtype=torch.int64)
    return torch.bucketize(middle_twice, bounds, right=True).to(torch.int32)
