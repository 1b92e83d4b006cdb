"""Owners by hash."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.ops import to_signed

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def random_owner(node: Tensor, parts: int, seed: int) -> Tensor:
    """A part for every node that depends on (seed, original id, number of parts) alone.

    The generator's hash (csrc/kernels/random.h) of seed and id; its upper 32 bits, as a fraction, times the
    number of parts.

    Args:
        node: [n] original ids.
        parts: number of parts, below 2**31.
        seed: any whole number.

    Returns:
        [n] int32.
    """
    key = _fold(torch.zeros(1, dtype=torch.int64), torch.tensor(to_signed(seed)))
    upper = _shift(_fold(key, node.to(torch.int64)), 32)
    return ((upper * parts) >> 32).to(torch.int32)


def _fold(key: Tensor, value: Tensor) -> Tensor:
    z = (key ^ value) + to_signed(_GAMMA)
    z = (z ^ _shift(z, 30)) * to_signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shift(z, 27)) * to_signed(0x94D049BB133111EB)
    return z ^ _shift(z, 31)


def _shift(value: Tensor, bits: int) -> Tensor:
    """A shift to the right that brings in zeros, of signed numbers."""
    return (value >> bits) & (_MASK >> bits)
