"""The keys of random choices (docs/concepts/sampling-contract.md gives the definitions)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

from pyg_batchgnn.ops.checks import check_vector
from pyg_batchgnn.ops.library import MASK64, kernels, to_signed


def keyed_permutation(n: int, seed: int, epoch: int) -> Tensor:
    """Returns a permutation of range(n), [n] int64, that depends only on ``(seed, epoch)``."""
    if n < 0:
        raise ValueError(f"n must not be negative, got {n}")
    return kernels.keyed_permutation(n, to_signed(seed), to_signed(epoch))


def minibatch_key(seeds: Tensor) -> int:
    """Returns the digest of seed nodes [S] int64 in their order, in [0, 2**64)."""
    check_vector("seeds", seeds, (torch.int64,))
    return kernels.minibatch_key(seeds) & MASK64


def digest_text(value: int) -> str:
    """Returns the 16 hexadecimal digits of a digest, modulo 2**64."""
    return f"{value & MASK64:016x}"


#: A word of 64 bits, or many.
Word = TypeVar("Word", int, Tensor)

# Signed, so that int64 tensors can be multiplied by them; modulo 2**64 that is the same.
_GAMMA = to_signed(0x9E3779B97F4A7C15)
_MULTIPLIERS = to_signed(0xBF58476D1CE4E5B9), to_signed(0x94D049BB133111EB)
_DROPOUT = int.from_bytes(b"dropout", "little")


def fold_key(key: Word, value: Word) -> Word:
    """Folds one more component into a key, as in csrc/kernels/random.h (SplitMix64): words of 64
    bits, as unsigned integers or as int64 tensors whose shapes broadcast."""
    z = _wrapped((key ^ value) + _GAMMA)
    z = _wrapped((z ^ _shifted(z, 30)) * _MULTIPLIERS[0])
    z = _wrapped((z ^ _shifted(z, 27)) * _MULTIPLIERS[1])
    return z ^ _shifted(z, 31)


def _wrapped(word: Word) -> Word:
    """Returns a word modulo 2**64, as tensors compute anyway."""
    return word & MASK64 if isinstance(word, int) else word


def _shifted(word: Word, bits: int) -> Word:
    return (word >> bits) & (MASK64 >> bits)


def names_key(names: Sequence[str]) -> int:
    """Returns the digest of the name of a node type or the names of a relation, in [0, 2**64). Each
    name adds the number of its UTF-8 bytes and then the bytes, eight at a time, as little-endian
    words, the last one filled with zeros."""
    key = 0
    for name in names:
        data = name.encode()
        key = fold_key(key, len(data))
        for begin in range(0, len(data), 8):
            key = fold_key(key, int.from_bytes(data[begin : begin + 8], "little"))
    return key


def dropout_key(seed: int, epoch: int, minibatch: int, layer: int) -> int:
    """Returns the key of the dropout of one layer, as operators take it (signed 64 bits). With it,
    the original id of the node and the column decide whether an element is dropped (docs/design.md,
    section 5).

    Args:
        minibatch: the digest of the seed nodes (`minibatch_key`).
        layer: the number of the layer; 1 is nearest the input.
    """
    key = 0
    for part in (seed, epoch, minibatch, layer):
        key = fold_key(key, part & MASK64)
    # Different from the keys of the sampler, which have the same components.
    return to_signed(fold_key(key, _DROPOUT))


def part_key(key: int, part: str) -> int:
    """Returns a part's key for its own dropout; the first eight characters of its name count."""
    return to_signed(fold_key(key & MASK64, int.from_bytes(part.encode()[:8], "little")))


def drawn_key() -> int:
    """Draws a key for dropout, 64 bits, from torch's default generator."""
    return int(torch.empty((), dtype=torch.int64).random_(-(2**63), None))


# Streams of words #################################################################################


_LOW = 0xFFFFFFFF


class WordStreams:
    """Streams of random words of 64 bits, one per key [n] int64: word t is ``word(t)`` of the
    sampling contract. Methods take the positions [w] int64 of the streams that they draw from, each
    at most once, and move only those on."""

    def __init__(self, keys: Tensor) -> None:
        self._counter = keys.clone()

    @property
    def keys(self) -> Tensor:
        """[n] int64, the keys of streams that go on where these are."""
        return self._counter

    def next(self, which: Tensor) -> Tensor:
        """Returns the next words, as [w] int64 whose bits count."""
        counter = self._counter[which]
        self._counter[which] = counter + _GAMMA
        return fold_key(counter, torch.zeros_like(counter))

    def bounded(self, bound: Tensor, which: Tensor) -> Tensor:
        """Returns uniform integers below ``bound``, [w] int64 of at least 1, as ``bounded`` of the
        sampling contract."""
        word = self.next(which)
        drawn, low = multiply_high(word, bound), word * bound
        suspects = ((low >= 0) & (low < bound)).nonzero().view(-1)  # about one in 2**64 / bound
        for at in suspects.tolist():
            below, rest = int(bound[at]), int(low[at])
            while rest < (2**64 - below) % below:
                drawn[at], rest = divmod(int(self.next(which[at : at + 1])) % 2**64 * below, 2**64)
        return drawn

    def uniform(self, which: Tensor) -> Tensor:
        """Returns numbers in [0, 1), [w] float64: the upper 53 bits of the next words."""
        return ((self.next(which) >> 11) & (2**53 - 1)).double() * 2.0**-53


def multiply_high(word: Tensor, factor: Tensor) -> Tensor:
    """Returns the upper 64 bits of the products of unsigned words, int64 whose bits count."""
    low, high = word & _LOW, (word >> 32) & _LOW
    factor_low, factor_high = factor & _LOW, (factor >> 32) & _LOW
    middle = high * factor_low + (((low * factor_low) >> 32) & _LOW)
    carried = low * factor_high + (middle & _LOW)
    return high * factor_high + ((middle >> 32) & _LOW) + ((carried >> 32) & _LOW)
