"""Owners by hash."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.ops import fold_key, to_signed

_UPPER = (1 << 32) - 1


def random_owner(node: Tensor, parts: int, seed: int) -> Tensor:
    """Returns a part for every node, which depends on (seed, original id, number of parts) alone.

    The part is the upper half of a hash of seed and id, as a fraction of 2**32, times the number of
    parts.

    Args:
        node: [n] int32 or int64 original ids.
        parts: the number of parts, below 2**31.
        seed: any whole number.

    Returns:
        [n] int32.
    """
    key = fold_key(torch.zeros(1, dtype=torch.int64), torch.tensor(to_signed(seed)))
    upper = (fold_key(key, node.to(torch.int64)) >> 32) & _UPPER
    return ((upper * parts) >> 32).to(torch.int32)
