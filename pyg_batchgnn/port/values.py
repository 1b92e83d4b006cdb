"""The values of a recorded ``forward``: which rows they have, and how many.

A minibatch has nodes of hops 0 to H, seeds first, and edges of hops 1 to H (design, section 3). A
value has a row for each node of hops 0 to h of one type, for each edge of hops 1 to h of one
relation, or neither. Only the first kind can be computed for fewer rows than ``forward`` asks for.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from pyg_batchgnn.types import Relation


class Refusal(BaseException):
    """The reason why a ``forward`` cannot be recorded. It passes the user's ``except Exception``.

    Attributes:
        reason: a clause that follows "because", with the file and line.
        path: the module in whose ``forward`` it is; empty for the model itself.
        is_final: it does not help to call that module as one step.
    """

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.path, self.is_final = reason, "", is_final


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

    It is the number itself. What is computed from it is recorded where that is a sum, and refused
    otherwise: a graph must not keep the sizes of one batch.

    Attributes:
        form: the sum of counters that it is; None if only a recorded call tells.
        number: the number of its value in the recording; None if the form tells.
    """

    form: Form | None
    number: int | None
    #: While recording: what is told a comparison of a form with zero, and what came out; and what
    #: returns where the user's code is, in brackets.
    recording: ClassVar[
        tuple[Callable[[Form | None, Callable[[int, int], bool], bool], None], Callable[[], str]] | None
    ] = None

    def __new__(cls, value: int, form: Form | None, number: int | None = None) -> Count:
        made = super().__new__(cls, value)
        made.form, made.number = form, number
        return made

    def _sum(self, other: Any, sign: int, reverse: bool = False) -> Any:
        right = other.form if isinstance(other, Count) else Form(frozenset(), other)
        if type(other) not in (int, Count) or self.form is None or right is None:
            if Count.recording is not None:
                return _computed("arithmetic")
            return getattr(int, f"__{'r' * reverse}{'add' if sign > 0 else 'sub'}__")(self, other)
        left = self.form
        if reverse:
            left, right = right, left
        value = int(self) + sign * int(other) if not reverse else int(other) + sign * int(self)
        return Count(value, left.plus(right, sign))

    def __add__(self, other: Any) -> Any:
        return self._sum(other, 1)

    def __radd__(self, other: Any) -> Any:
        return self._sum(other, 1, reverse=True)

    def __sub__(self, other: Any) -> Any:
        return self._sum(other, -1)

    def __rsub__(self, other: Any) -> Any:
        return self._sum(other, -1, reverse=True)

    def __neg__(self) -> Any:
        return Count(0, Form(frozenset()))._sum(self, -1)

    def _compared(self, other: Any, compare: Callable[[Any, Any], bool]) -> bool:
        if not isinstance(other, (int, float)):
            return NotImplemented
        right = other.form if isinstance(other, Count) else Form(frozenset(), other)
        difference = None if self.form is None or right is None else self.form.plus(right, -1)
        found = compare(int(self), int(other) if isinstance(other, Count) else other)
        if Count.recording is not None:
            Count.recording[0](difference, compare, found)
        return found

    def __eq__(self, other: object) -> bool:
        return self._compared(other, operator.eq)

    def __ne__(self, other: object) -> bool:
        return self._compared(other, operator.ne)

    def __lt__(self, other: Any) -> bool:
        return self._compared(other, operator.lt)

    def __le__(self, other: Any) -> bool:
        return self._compared(other, operator.le)

    def __gt__(self, other: Any) -> bool:
        return self._compared(other, operator.gt)

    def __ge__(self, other: Any) -> bool:
        return self._compared(other, operator.ge)

    def __bool__(self) -> bool:
        return self._compared(0, operator.ne)

    def __int__(self) -> int:
        if Count.recording is not None and sys._getframe(1).f_globals.get("__package__") != __package__:
            _computed("int")  # a graph would keep the number
        return int.__int__(self)

    def __hash__(self) -> int:
        return hash(int(self))

    def __reduce__(self) -> Any:
        return int, (int(self),)


def _computed(how: str) -> Any:
    place = "" if Count.recording is None else Count.recording[1]()
    raise Refusal(
        f"it computes with the number of rows of a tensor by {how}{place}, which differs from batch to batch"
    )


def _refused_while_recording(name: str) -> Callable[..., Any]:
    plain = getattr(int, name)

    def method(self: Count, *given: Any) -> Any:
        return plain(int.__int__(self), *given) if Count.recording is None else _computed(name.strip("_"))

    return method


for _name in (
    *("mul", "rmul", "truediv", "rtruediv", "floordiv", "rfloordiv", "mod", "rmod", "pow", "rpow"),
    *("divmod", "float", "abs", "and", "or", "xor", "lshift", "rshift", "invert"),
    *("str", "format", "round", "ceil", "floor", "trunc"),
):
    setattr(Count, f"__{_name}__", _refused_while_recording(f"__{_name}__"))


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
