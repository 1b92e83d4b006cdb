"""A random permutation of node ids that needs memory for the square root of their number."""

from __future__ import annotations

import math

import numpy as np

from pyg_batchgnn.data.generator.spec import GeneratorSpec, RandomStream

_ROUNDS = 4  # enough for a random-looking permutation when the round functions are random (Luby and Rackoff)


class IdPermutation:
    """A permutation of range(n): place -> id and back.

    An unbalanced Feistel network on pairs (left, right) in Z_a x Z_b with a * b >= n, whose round
    functions are tables of random numbers. A result outside range(n) goes through the network again
    until it is inside; since a * b - n < a, that is rare.

    Args:
        spec: gives n and the seed.
    """

    def __init__(self, spec: GeneratorSpec) -> None:
        self._size = spec.nodes
        self._b = math.isqrt(self._size - 1) + 1
        self._a = -(-self._size // self._b)
        random = spec.random(RandomStream.PERMUTATION)
        self._left_tables = [random.integers(0, self._a, self._b, np.int32) for _ in range(_ROUNDS // 2)]
        self._right_tables = [random.integers(0, self._b, self._a, np.int32) for _ in range(_ROUNDS // 2)]

    def to_id(self, place: np.ndarray) -> np.ndarray:
        """Returns the ids [n] int64 of places [n]."""
        return self._walk(place, inverse=False)

    def to_place(self, ids: np.ndarray) -> np.ndarray:
        """Returns the places [n] int64 of ids [n]."""
        return self._walk(ids, inverse=True)

    def _walk(self, value: np.ndarray, *, inverse: bool) -> np.ndarray:
        step = self._backward if inverse else self._forward
        value = step(np.asarray(value, np.int64))
        while len(outside := np.flatnonzero(value >= self._size)):
            value[outside] = step(value[outside])
        return value

    def _forward(self, value: np.ndarray) -> np.ndarray:
        left, right = self._split(value)
        for left_table, right_table in zip(self._left_tables, self._right_tables, strict=True):
            left += left_table[right]
            np.subtract(left, self._a, out=left, where=left >= self._a)
            right += right_table[left]
            np.subtract(right, self._b, out=right, where=right >= self._b)
        return left.astype(np.int64) * self._b + right

    def _backward(self, value: np.ndarray) -> np.ndarray:
        left, right = self._split(value)
        for left_table, right_table in zip(self._left_tables[::-1], self._right_tables[::-1], strict=True):
            right -= right_table[left]
            np.add(right, self._b, out=right, where=right < 0)
            left -= left_table[right]
            np.add(left, self._a, out=left, where=left < 0)
        return left.astype(np.int64) * self._b + right

    def _split(self, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        left = value // self._b
        right = value - left * self._b
        return left.astype(np.int32), right.astype(np.int32)
