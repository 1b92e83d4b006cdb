"""The calls of a captured ``forward``, in their order, and the kinds of their values: which rows
they have, and how many.

A value has a row for each node of hops 0 to h of one type, for each edge of hops 1 to h of one
relation, or neither (design, section 3). Only the first can be computed for fewer rows.
"""

from __future__ import annotations

import enum
import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor


class Refusal(BaseException):
    """The reason why a ``forward`` cannot be captured: a clause after "because", with file and
    line. A user's ``except Exception`` does not catch it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Prefix:
    """What has one row for each node or edge of the first hops."""

    name: Any  # the node type or the relation; None for the only one
    hops: int
    kind: ClassVar[str] = "edges"
    dim: ClassVar[int] = 0  # the dimension of these rows


class Nodes(Prefix):
    """One row for each node of a type, of hops 0 to ``hops``."""

    kind = "nodes"


class Edges(Prefix):
    """One row for each edge of a relation, of hops 1 to ``hops``, as in the edge index."""


class BatchEdges(Prefix):
    """The edges of hops 1 to ``hops``, [2, E], sources above targets."""

    dim = 1


@dataclass(frozen=True)
class SeedIds:
    """Local ids of seeds, as the links of a batch hold them."""

    name: Any  # the relation of the links, or the type


class Other(enum.Enum):
    FIXED = "a parameter, a buffer, or a value that is computed from these alone"
    WHOLE = "a value of any other kind, always computed whole"


FIXED, WHOLE = Other
#: What the rows of a value are.
Axis = Prefix | SeedIds | Other

#: A counter of a batch: ("nodes", type, hop) or ("edges", relation, hop).
Counter = tuple[str, Any, int]


@dataclass(frozen=True)
class Form:
    """A number as a sum of counts of the batch (nodes or edges of a hop) and a constant."""

    terms: frozenset[tuple[Counter, int]]  # the factors of the counters, without zeros
    constant: float = 0

    @classmethod
    def of(cls, terms: Mapping[Counter, int], constant: float = 0) -> Form:
        return cls(frozenset((one, factor) for one, factor in terms.items() if factor), constant)

    @classmethod
    def prefix(cls, kind: str, name: Any, hops: int) -> Form:
        return cls.of({(kind, name, hop): 1 for hop in range(hops + 1)})

    def plus(self, other: Form, sign: int = 1) -> Form:
        found = dict(self.terms)
        for one, factor in other.terms:
            found[one] = found.get(one, 0) + sign * factor
        return Form.of(found, self.constant + sign * other.constant)

    def value(self, count: Callable[[Counter], int]) -> Any:
        return self.constant + sum(factor * count(one) for one, factor in self.terms)


class Count(int):
    """A number that is computed from the sizes of a batch, such as a number of rows."""

    form: Form  # the sum of counters that it is

    def __new__(cls, value: int, form: Form) -> Count:
        made = super().__new__(cls, value)
        made.form = form
        return made

    def __reduce__(self) -> Any:
        return int, (int(self),)


def form_of(axis: Axis, dim: int | None = None) -> Form | None:
    """Returns the number of a value's rows; None if unknown, or ``dim`` is not their dimension."""
    if not isinstance(axis, Prefix) or dim not in (None, axis.dim):
        return None
    return Form.prefix(axis.kind, axis.name, axis.hops)


def form_of_sum(target: Any, args: Sequence[Any]) -> Form | None:
    """Returns the form of a sum or difference of forms and constants; None for another function."""
    if len(args) == 1 and isinstance(args[0], (list, tuple)):
        args = args[0]
    numbers = [one for one in args if type(one) in (int, Count)]
    forms = [one.form if isinstance(one, Count) else Form.of({}, one) for one in numbers]
    if not any(isinstance(one, Count) for one in args) or len(forms) != len(args):
        return None
    if target in (operator.add, getattr(torch, "sym_sum", None)):
        return functools.reduce(Form.plus, forms)
    if target is operator.sub and len(forms) == 2:
        return forms[0].plus(forms[1], -1)
    return Form.of({}).plus(forms[0], -1) if target is operator.neg else None


def axis_cut(axis: Axis, form: Form | None) -> Axis | None:
    """Returns what a value's first ``form`` rows are rows of; None if they end within a hop."""
    if form is None or not isinstance(axis, Prefix):
        return None
    shorter = (replace(axis, hops=hops) for hops in range(axis.hops + 1))
    return next((one for one in shorter if form_of(one) == form), None)


@dataclass(frozen=True)
class Ref:
    """Stands for the tensor or number that a call of the recording computes."""

    number: int


@dataclass(frozen=True)
class ModuleCall:
    path: str  # its name in the model; empty for the model itself
    method: str = "forward"  # "forward", or "propagate" for the messages of a layer of the user's own


class Way(enum.Enum):
    NATIVE = "native"
    TRIMMED = "trimmed"


@dataclass(frozen=True)
class Reads:
    """The arguments of a convolution."""

    sources: Any  # a value, or several by name
    targets: Any  # as ``sources``, and the same if the targets are the first of them
    edges: Ref  # the edge index
    values: Mapping[str, Any]  # values of edges, by the name of the argument
    rows: Mapping[str, Any] = field(default_factory=dict)  # other values of the sources, by name


@dataclass
class Call:
    """A captured call. Arguments hold a `Ref` for a computed value and a `Count` for a size."""

    target: Callable[..., Any] | ModuleCall
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: list[int]  # the values that it made, in the order of `leaves_of`
    by_row: bool  # each row of the results follows from the same row of the arguments
    layer: int  # how many message passing layers were captured before
    where: str  # the file and line of the user's code
    #: of a convolution over the edges of the batch, if rows can be asked for
    message_passing: Way | None = None
    reads: Reads = Reads(None, None, Ref(-1), {})  # of a convolution
    note: str = ""  # why it computes all rows, if it reads rows of nodes and does
    columns: tuple[str, ...] = ()  # the sizes of the rows of its result
    writes: bool = False  # to a parameter, a buffer or running statistics, so that it runs once
    files: tuple[str, ...] = ()  # where it was called, the innermost file last
    #: It looks up nodes by the ends of edges. The ends of edges up to a hop are nodes up to it.
    of_ends: bool = False
    tree: Any = None  # its results, nested as the function returns them

    @property
    def result(self) -> Ref:
        return Ref(self.results[0])


@dataclass
class Recording:
    calls: list[Call] = field(default_factory=list)
    axes: list[Axis] = field(default_factory=list)  # what the rows of each value are
    inputs: list[int] = field(default_factory=list)  # the values of the placeholders
    output: list[Any] = field(default_factory=list)  # a value, or a number, for each output of the graph
    #: of each output, whether ``forward`` returns it; else it is the effect of a write
    returned: list[bool] = field(default_factory=list)
    #: what the rows of each tensor in the result are, by the node of the graph
    result: dict[torch.fx.Node, Axis] = field(default_factory=dict)
    decides: bool = False  # it depends on comparisons of numbers of rows

    def are_fixed(self, values: Iterable[int]) -> bool:
        return all(self.axes[one] is FIXED for one in values)


def mapped(tree: Any, change: Callable[[Any], Any]) -> Any:
    """Returns nested tuples, lists, dicts and slices with ``change`` applied to every leaf."""
    if isinstance(tree, tuple):
        made = [mapped(one, change) for one in tree]
        if type(tree) in (tuple, torch.Size):
            return tuple(made)
        return type(tree)(*made) if hasattr(tree, "_fields") else type(tree)(made)
    if isinstance(tree, list):
        return [mapped(one, change) for one in tree]
    if isinstance(tree, dict):
        return {name: mapped(one, change) for name, one in tree.items()}
    if isinstance(tree, slice):
        return slice(*(mapped(one, change) for one in (tree.start, tree.stop, tree.step)))
    return change(tree)


def leaves_of(tree: Any) -> Iterator[Any]:
    """Yields the leaves of nested tuples, lists, dicts and slices, in the order of `mapped`."""
    if isinstance(tree, (tuple, list)):
        for one in tree:
            yield from leaves_of(one)
    elif isinstance(tree, dict):
        yield from leaves_of([*tree.values()])
    elif isinstance(tree, slice):
        yield from leaves_of((tree.start, tree.stop, tree.step))
    else:
        yield tree


def tensors(tree: Any) -> list[Tensor]:
    return [one for one in leaves_of(tree) if isinstance(one, Tensor)]


def has_counts(tree: Any) -> bool:
    return any(isinstance(one, Count) for one in leaves_of(tree))


def refs(tree: Any) -> list[int]:
    return [one.number for one in leaves_of(tree) if isinstance(one, Ref)]
