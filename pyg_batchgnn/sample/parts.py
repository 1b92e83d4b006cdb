"""The parts of a minibatch: one per node type or per relation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, overload

_Part = TypeVar("_Part")


class Parts(Sequence[_Part]):
    """The parts of a minibatch by number of the node type or relation.

    Those that the minibatch does not reach are one and the same object, and take no time.

    Args:
        length: the number of types or relations.
        reached: by number, in ascending order, the parts that the minibatch reaches.
        rest: every other part; ignored if there is none.
    """

    __slots__ = ("_length", "_rest", "reached")

    def __init__(self, length: int, reached: Mapping[int, _Part], rest: _Part | None = None) -> None:
        self._length, self.reached, self._rest = length, reached, rest

    @classmethod
    def of(cls, parts: Sequence[_Part]) -> Parts[_Part]:
        """Returns the parts of a list that has all of them."""
        return parts if isinstance(parts, Parts) else cls(len(parts), dict(enumerate(parts)))

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, number: int) -> _Part: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[_Part]: ...
    def __getitem__(self, number: int | slice) -> Any:
        if isinstance(number, slice):
            return tuple(self)[number]
        at = range(self._length)[number]
        return self.reached.get(at, self._rest)

    def __iter__(self) -> Iterator[_Part]:
        get, rest = self.reached.get, self._rest
        return (get(number, rest) for number in range(self._length))  # type: ignore[misc]
