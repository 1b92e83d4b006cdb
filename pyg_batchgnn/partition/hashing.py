"""Owners by hash."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.ops import fold_key, names_key, to_signed

_UPPER = (1 << 32) - 1


def random_owner(node: Tensor, parts: int, seed: int, node_type: str | None = None) -> Tensor:
    """Returns a part for every node, which depends on (seed, type, original id, number of parts)
    alone.

    The part is the upper half of a hash of seed, type and id, as a fraction of 2**32, times the
    number of parts.

    Args:
        node: [n] int32 or int64 original ids.
        parts: the number of parts, below 2**31.
        seed: any whole number.
        node_type: the name of the nodes' type; None in a graph of one type, where it adds nothing
            to the hash.

    Returns:
        [n] int32.
    """
    key = fold_key(torch.zeros(1, dtype=torch.int64), torch.tensor(to_signed(seed)))
    if node_type is not None:
        key = fold_key(key, torch.tensor(to_signed(names_key([node_type]))))
    upper = (fold_key(key, node.to(torch.int64)) >> 32) & _UPPER
    return ((upper * parts) >> 32).to(torch.int32)
