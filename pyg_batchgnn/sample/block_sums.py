"""Drawing positions in proportion to weights, by prefix sums over fixed blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

#: Entries of a block.
BLOCK = 4096
_STEPS = BLOCK.bit_length() - 1


@dataclass(frozen=True, eq=False)
class BlockSums:
    """The prefix sums of weights in float64, which start anew at every block.

    Sums are sequential, so their bits do not depend on who computes them.

    Attributes:
        inner: [blocks, BLOCK] float64, within each block the sum of its weights up to and with each
            position. The last block is filled with weights of zero.
        outer: [blocks] float64, the sum of the blocks up to and with each.
    """

    inner: Tensor
    outer: Tensor

    @classmethod
    def of(cls, weight: Tensor) -> BlockSums:
        """Returns the sums of [n] weights of any floating point type."""
        blocks = -(-weight.numel() // BLOCK)
        padded = np.zeros(blocks * BLOCK)
        padded[: weight.numel()] = weight.double().numpy()
        inner = np.cumsum(padded.reshape(blocks, BLOCK), axis=1)
        return cls(torch.from_numpy(inner), torch.from_numpy(np.cumsum(inner[:, -1])))

    def before(self, count: Tensor) -> Tensor:
        """Returns the sum of the first ``count`` weights, float64 for each entry of [n] int64."""
        block = ((count - 1) // BLOCK).clamp(min=0)
        inner = self.inner.view(-1)[(count - 1).clamp(min=0)]
        return torch.where(count > 0, self._outer_before(block) + inner, 0.0)

    def find(self, level: Tensor, count: Tensor) -> Tensor:
        """Returns the positions at which the sum first exceeds ``level``, never of zero weight.

        Args:
            level: [n] float64, at least 0 and less than ``before(count)``.
            count: [n] int64, the result is below it.
        """
        block = torch.searchsorted(self.outer, level, right=True)
        end = torch.minimum(count - block * BLOCK, torch.tensor(BLOCK))
        rest = level - self._outer_before(block)
        top = self.inner.view(-1)[block * BLOCK + end - 1]
        # Subtracting may round up to the whole sum, which no position exceeds: then the last
        # position of positive weight is taken, where the sum first reaches the whole.
        inside = rest < top
        target = torch.where(inside, rest, top)
        return block * BLOCK + self._search(block, target, inside)

    def _outer_before(self, block: Tensor) -> Tensor:
        return torch.where(block > 0, self.outer[(block - 1).clamp(min=0)], 0.0)

    def _search(self, block: Tensor, target: Tensor, exceed: Tensor) -> Tensor:
        """Returns the first place in each block whose sum exceeds the target, or reaches it."""
        sums, found = self.inner.view(-1), torch.zeros_like(block)
        for step in reversed(range(_STEPS)):
            value = sums[block * BLOCK + found + (1 << step) - 1]
            found += ((value < target) | (exceed & (value == target))).long() << step
        return found
