"""Random words of many keys at a time, as the kernels draw those of one (csrc/kernels/random.h)."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.ops.keys import fold_key
from pyg_batchgnn.ops.library import to_signed

_GAMMA = to_signed(0x9E3779B97F4A7C15)
_LOW = 0xFFFFFFFF


class WordStreams:
    """Streams of random words of 64 bits, one per key.

    Word t of a stream is ``word(t)`` of the sampling contract. Every method takes the positions of
    the streams that it draws from, each at most once, and moves only those on.

    Args:
        keys: [n] int64, the keys, whose 64 bits count.
    """

    def __init__(self, keys: Tensor) -> None:
        self._counter = keys.clone()

    @property
    def keys(self) -> Tensor:
        """[n] int64, the keys of streams that go on where these are."""
        return self._counter

    def next(self, which: Tensor) -> Tensor:
        """Returns the next word of some streams, as [w] int64 whose bits count.

        Args:
            which: [w] int64, positions of the streams.
        """
        counter = self._counter[which]
        self._counter[which] = counter + _GAMMA
        return fold_key(counter, torch.zeros_like(counter))

    def bounded(self, bound: Tensor, which: Tensor) -> Tensor:
        """Returns uniform integers below ``bound``, as ``bounded`` of the sampling contract.

        Args:
            bound: [w] int64, at least 1.
            which: [w] int64, positions of the streams.
        """
        word = self.next(which)
        drawn, low = multiply_high(word, bound), word * bound
        suspects = ((low >= 0) & (low < bound)).nonzero().view(-1)  # about one in 2**64 / bound
        for at in suspects.tolist():
            drawn[at] = self._redrawn(int(drawn[at]), int(low[at]), int(bound[at]), which[at : at + 1])
        return drawn

    def uniform(self, which: Tensor) -> Tensor:
        """Returns numbers in [0, 1), [w] float64: the upper 53 bits of the next words.

        Args:
            which: [w] int64, positions of the streams.
        """
        return ((self.next(which) >> 11) & (2**53 - 1)).double() * 2.0**-53

    def _redrawn(self, drawn: int, low: int, bound: int, which: Tensor) -> int:
        """Draws until a word's low half is not among those that would favour small results."""
        while low < (2**64 - bound) % bound:
            word = int(self.next(which)) % 2**64
            drawn, low = divmod(word * bound, 2**64)
        return drawn


def multiply_high(word: Tensor, factor: Tensor) -> Tensor:
    """Returns the upper 64 bits of the products of unsigned words, int64 whose bits count."""
    low, high = word & _LOW, (word >> 32) & _LOW
    factor_low, factor_high = factor & _LOW, (factor >> 32) & _LOW
    middle = high * factor_low + (((low * factor_low) >> 32) & _LOW)
    carried = low * factor_high + (middle & _LOW)
    return high * factor_high + ((middle >> 32) & _LOW) + ((carried >> 32) & _LOW)
