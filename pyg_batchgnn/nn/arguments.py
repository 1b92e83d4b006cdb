"""The checks of the arguments that constructors of layers and models have in common."""

from __future__ import annotations

import operator
from typing import Any

from pyg_batchgnn import ops


def positive(name: str, value: Any) -> int:
    """Returns a number of columns, layers or heads as an integer.

    Raises:
        TypeError: it is no integer.
        ValueError: it is not positive.
    """
    found = _integer(name, value)
    if found < 1:
        raise ValueError(f"{name}={value!r}, but it must be at least 1")
    return found


def input_columns(name: str, value: Any) -> Any:
    """Returns a number of input columns, or a pair of them for sources and targets.

    -1 leaves a number to the first call.

    Raises:
        TypeError, ValueError: it is neither.
    """
    if isinstance(value, (tuple, list)):
        if len(value) != 2:
            raise ValueError(f"{name}={value!r}, but it must be a number or (of sources, of targets)")
        return tuple(input_columns(name, one) for one in value)
    found = _integer(name, value)
    if found < 1 and found != -1:
        raise ValueError(f"{name}={value!r}, but it must be at least 1, or -1 to come from the first call")
    return found


def probability(name: str, value: Any) -> float:
    """Returns a probability of dropping.

    Raises:
        TypeError: it is no number.
        ValueError: it is not in [0, 1).
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name}={value!r}, but it must be a number in [0, 1)")
    try:
        ops.check_drop(value)
    except ValueError as error:
        raise ValueError(f"{name}={value!r}: {error}") from None
    return value


def _integer(name: str, value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError(f"{name}={value!r}, but it must be an integer")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r}, but it must be an integer") from None
