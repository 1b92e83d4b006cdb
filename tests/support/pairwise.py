"""Settings that have every pair of values of two factors somewhere."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

#: A value of a factor: the factor's name and the number of the value.
_Value = tuple[str, int]


def pairwise(
    factors: Mapping[str, Sequence[Any]], allowed: Callable[[Mapping[str, Any]], bool]
) -> list[dict[str, Any]]:
    """Returns settings, the same for the same arguments, such that every allowed pair is in one.

    Args:
        factors: the values of each factor.
        allowed: returns whether some factors may have these values together.
    """
    left = dict.fromkeys(_pairs(factors, allowed))
    rows = []
    while left:
        row = dict(next(iter(left)))
        for name in factors:
            if name not in row:
                row[name] = max(_choices(factors, allowed, row, name), key=lambda n: _new(left, row, name, n))
        for pair in itertools.combinations([(name, row[name]) for name in factors], 2):
            left.pop(pair, None)
        rows.append(_named(factors, row))
    return rows


def product(
    factors: Mapping[str, Sequence[Any]], allowed: Callable[[Mapping[str, Any]], bool]
) -> list[dict[str, Any]]:
    """Returns all allowed settings."""
    rows = (dict(zip(factors, values, strict=True)) for values in itertools.product(*factors.values()))
    return [row for row in rows if allowed(row)]


def drawn(
    row: Mapping[str, Any],
    factors: Mapping[str, Sequence[Any]],
    allowed: Callable[[Mapping[str, Any]], bool],
    draw: random.Random,
) -> dict[str, Any]:
    """Returns an allowed setting with the values of ``row``, which some setting has, and others."""
    others = {name: values for name, values in factors.items() if name not in row}
    while True:
        setting = {**row, **{name: draw.choice(values) for name, values in others.items()}}
        if allowed(setting):
            return setting


def _pairs(
    factors: Mapping[str, Sequence[Any]], allowed: Callable[[Mapping[str, Any]], bool]
) -> Iterator[tuple[_Value, _Value]]:
    for one, other in itertools.combinations(factors, 2):
        for numbers in itertools.product(range(len(factors[one])), range(len(factors[other]))):
            pair = ((one, numbers[0]), (other, numbers[1]))
            if allowed(_named(factors, dict(pair))):
                yield pair


def _choices(
    factors: Mapping[str, Sequence[Any]],
    allowed: Callable[[Mapping[str, Any]], bool],
    row: Mapping[str, int],
    name: str,
) -> list[int]:
    return [n for n in range(len(factors[name])) if allowed(_named(factors, {**row, name: n}))]


def _new(left: Mapping[Any, None], row: Mapping[str, int], name: str, number: int) -> int:
    """Returns how many pairs that are left a value adds to a row."""
    own = (name, number)
    return sum((own, other) in left or (other, own) in left for other in row.items())


def _named(factors: Mapping[str, Sequence[Any]], row: Mapping[str, int]) -> dict[str, Any]:
    return {name: factors[name][number] for name, number in row.items()}
