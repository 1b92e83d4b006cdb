"""The values of a captured ``forward``: which rows they have, and how many.

A minibatch has nodes of hops 0 to H, seeds first, and edges of hops 1 to H (design, section 3). A
value has a row for each node of hops 0 to h of one type, for each edge of hops 1 to h of one
relation, or neither. Only the first kind can be computed for fewer rows than ``forward`` asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyg_batchgnn.types import Relation


class Refusal(BaseException):
    """The reason why a ``forward`` cannot be captured. It passes the user's ``except Exception``.

    Attributes:
        reason: a clause that follows "because", with the file and line.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Nodes:
    """One row for each node of a type, of hops 0 to ``hops``. ``name``: None for the only type."""

    name: str | None
    hops: int


@dataclass(frozen=True)
class Edges:
    """One row for each edge of a relation, of hops 1 to ``hops``, in the order of the edge
    index."""

    relation: Relation | None
    hops: int


@dataclass(frozen=True)
class BatchEdges:
    """The edges of hops 1 to ``hops``, [2, E], sources above targets."""

    relation: Relation | None
    hops: int


@dataclass(frozen=True)
class SeedIds:
    """The local ids of seeds, which are the ends of the links of a batch.

    Attributes:
        name: the relation of the links, or the type.
    """

    name: Any


@dataclass(frozen=True)
class Fixed:
    """A parameter, a buffer, or a value that is computed from these alone."""


@dataclass(frozen=True)
class Whole:
    """A value of any other kind. It is computed from whole inputs."""


#: What the rows of a value are.
Axis = Nodes | Edges | BatchEdges | SeedIds | Fixed | Whole

FIXED, WHOLE = Fixed(), Whole()

#: A counter of a batch: ("nodes", type, hop) or ("edges", relation, hop).
Counter = tuple[str, Any, int]


@dataclass(frozen=True)
class Form:
    """A sum of counters of a batch, each with a factor, and a constant.

    Attributes:
        terms: the factors of the counters, without zeros.
    """

    terms: frozenset[tuple[Counter, int]]
    constant: float = 0

    @classmethod
    def of(cls, terms: Mapping[Counter, int], constant: float = 0) -> Form:
        return cls(frozenset((one, factor) for one, factor in terms.items() if factor), constant)

    @classmethod
    def prefix(cls, kind: str, name: Any, hops: int) -> Form:
        """Returns the number of nodes, or edges, of the first hops."""
        return cls.of({(kind, name, hop): 1 for hop in range(hops + 1)})

    def plus(self, other: Form, sign: int = 1) -> Form:
        found = dict(self.terms)
        for one, factor in other.terms:
            found[one] = found.get(one, 0) + sign * factor
        return Form.of(found, self.constant + sign * other.constant)

    def value(self, count: Callable[[Counter], int]) -> Any:
        """Returns the sum, an integer unless the constant is none."""
        return self.constant + sum(factor * count(one) for one, factor in self.terms)


class Count(int):
    """A number that follows from the sizes of a batch.

    Attributes:
        form: the sum of counters that it is.
    """

    form: Form

    def __new__(cls, value: int, form: Form) -> Count:
        made = super().__new__(cls, value)
        made.form = form
        return made

    def __reduce__(self) -> Any:
        return int, (int(self),)


def form_of(axis: Axis) -> Form | None:
    """Returns the number of rows of a value, or for an edge index of its columns."""
    if isinstance(axis, Nodes):
        return Form.prefix("nodes", axis.name, axis.hops)
    if isinstance(axis, (Edges, BatchEdges)):
        return Form.prefix("edges", axis.relation, axis.hops)
    return None


def axis_cut(axis: Axis, form: Form | None) -> Axis | None:
    """Returns the axis of the first ``form`` rows of a value, or None if that is no prefix by
    hop."""
    known = form_of(axis)
    if form is None or known is None:
        return None
    if not isinstance(axis, (Nodes, Edges, BatchEdges)):
        return None
    for hops in range(axis.hops + 1):
        shorter = replace(axis, hops=hops)
        if form_of(shorter) == form:
            return shorter
    return None
