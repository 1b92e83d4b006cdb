"""The keys of random choices (docs/concepts/sampling-contract.md gives the definitions)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

from pyg_batchgnn.ops.checks import check_vector
from pyg_batchgnn.ops.library import MASK64, kernels, to_signed


def keyed_permutation(n: int, seed: int, epoch: int) -> Tensor:
    """Returns [n] int64, a permutation of range(n) that depends on ``(seed, epoch)`` alone.

    >>> keyed_permutation(5, seed=1, epoch=0)
    tensor([4, 0, 3, 2, 1])
    """
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
    """Folds a component into a key (SplitMix64, as in csrc/kernels/random.h). Key and component are
    64-bit words: unsigned integers, or int64 tensors, which broadcast."""
    z = _wrapped((key ^ value) + _GAMMA)
    z = _wrapped((z ^ _shifted(z, 30)) * _MULTIPLIERS[0])
    z = _wrapped((z ^ _shifted(z, 27)) * _MULTIPLIERS[1])
    return z ^ _shifted(z, 31)


def _wrapped(word: Word) -> Word:
    """Returns a word modulo 2**64; tensors wrap by themselves."""
    return word & MASK64 if isinstance(word, int) else word


def _shifted(word: Word, bits: int) -> Word:
    return (word >> bits) & (MASK64 >> bits)


def names_key(names: Sequence[str]) -> int:
    """Returns the digest of a node type's name or a relation's names, in [0, 2**64). Each name adds
    the number of its UTF-8 bytes, then the bytes, eight at a time as little-endian words, padded
    with zeros."""
    key = 0
    for name in names:
        data = name.encode()
        key = fold_key(key, len(data))
        for begin in range(0, len(data), 8):
            key = fold_key(key, int.from_bytes(data[begin : begin + 8], "little"))
    return key


def dropout_key(seed: int, epoch: int, minibatch: int, layer: int) -> int:
    """Returns the key of a layer's dropout, signed 64 bits as operators take it. Whether an element
    is dropped is a function of this key, the node's original id and the column (docs/design.md,
    section 5).

    Args:
        seed, epoch: of the sampler.
        minibatch: the digest of the seed nodes (`minibatch_key`).
        layer: the number of the layer; 1 is nearest the input.
    """
    key = 0
    for part in (seed, epoch, minibatch, layer):
        key = fold_key(key, part & MASK64)
    # Different from the keys of the sampler, which have the same components.
    return to_signed(fold_key(key, _DROPOUT))


def part_key(key: int, part: str) -> int:
    """Returns the key for another dropout in the same layer, from the first eight characters of
    ``part``."""
    return to_signed(fold_key(key & MASK64, int.from_bytes(part.encode()[:8], "little")))


def drawn_key() -> int:
    """Draws a 64-bit key for dropout from torch's default generator."""
    return int(torch.empty((), dtype=torch.int64).random_(-(2**63), None))


# Streams of words #################################################################################


_LOW = 0xFFFFFFFF


class WordStreams:
    """Streams of random 64-bit words, one per key [n] int64: word t of a stream is ``word(t)`` of
    the sampling contract. Methods draw from the streams ``which`` [w] int64, distinct, and advance
    only these."""

    def __init__(self, keys: Tensor) -> None:
        self._counter = keys.clone()

    @property
    def keys(self) -> Tensor:
        """[n] int64, keys of streams that continue after the words drawn so far."""
        return self._counter

    def next(self, which: Tensor) -> Tensor:
        """Returns [w] int64, the bits of the next words."""
        counter = self._counter[which]
        self._counter[which] = counter + _GAMMA
        return fold_key(counter, torch.zeros_like(counter))

    def bounded(self, bound: Tensor, which: Tensor) -> Tensor:
        """Returns [w] int64, uniform integers in [0, bound), by ``bounded`` of the sampling
        contract. ``bound``: [w] int64, at least 1."""
        word = self.next(which)
        drawn, low = multiply_high(word, bound), word * bound
        suspects = ((low >= 0) & (low < bound)).nonzero().view(-1)  # about one in 2**64 / bound
        for at in suspects.tolist():
            below, rest = int(bound[at]), int(low[at])
            while rest < (2**64 - below) % below:
                drawn[at], rest = divmod(int(self.next(which[at : at + 1])) % 2**64 * below, 2**64)
        return drawn

    def uniform(self, which: Tensor) -> Tensor:
        """Returns [w] float64 in [0, 1), from the upper 53 bits of the next words."""
        return ((self.next(which) >> 11) & (2**53 - 1)).double() * 2.0**-53


def multiply_high(word: Tensor, factor: Tensor) -> Tensor:
    """Returns the upper 64 bits of products of unsigned words, all as the bits of int64."""
    low, high = word & _LOW, (word >> 32) & _LOW
    factor_low, factor_high = factor & _LOW, (factor >> 32) & _LOW
    middle = high * factor_low + (((low * factor_low) >> 32) & _LOW)
    carried = low * factor_high + (middle & _LOW)
    return high * factor_high + ((middle >> 32) & _LOW) + ((carried >> 32) & _LOW)
