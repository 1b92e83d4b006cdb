"""Digests by which ranks, and states that are resumed, compare links and what goes with them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn.ops import digest_text, fold_key, minibatch_key

#: Links that are digested at once.
_LINKS = 1 << 16


def links_sum(index: Tensor, position: Tensor | None = None) -> int:
    """Returns the sum of the digests of links, modulo 2**64.

    A link's digest is that of its position, its source and its target. So the sum over all links
    does not depend on the ranks that have them.

    Args:
        index: [2, n] int64, sources above targets.
        position: [n] int64, the positions among all links; None for 0, 1, and so on.
    """
    total = 0
    for begin in range(0, index.size(1), _LINKS):
        source, target = index[:, begin : begin + _LINKS]
        if position is None:
            at = torch.arange(begin, begin + source.numel())
        else:
            at = position[begin : begin + _LINKS]
        total += int(fold_key(fold_key(fold_key(torch.zeros_like(at), at), source), target).sum())
    return total


def described(values: Tensor) -> list[Any]:
    """Returns the type, the shape and the digest of a tensor's values, which JSON can hold."""
    data = values.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    words = torch.nn.functional.pad(data, (0, -data.numel() % 8)).view(torch.int64)
    return [str(values.dtype), list(values.shape), digest_text(minibatch_key(words))]
