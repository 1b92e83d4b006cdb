"""Amounts of memory: as users give them, and what is free."""

from __future__ import annotations

import re

import psutil

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_UNITS = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parse_bytes(text: str) -> int:
    """Returns the bytes that a text like 2GiB, 500MB or 100B stands for. Only 0 needs no unit.

    Raises:
        ValueError: the text is no number of bytes, or has no unit.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(([kmgt]i?)?b?)\s*", text.lower())
    if match is None:
        raise ValueError(f"{text!r} is not a number of bytes; write it like 2GiB, 500MB or 100B")
    amount = float(match[1])
    if amount and not match[2]:
        raise ValueError(f"{text!r} is an amount of memory without a unit; write it like 2GiB, 500MB or 100B")
    return int(amount * {**_UNITS, **_BINARY_UNITS}[match[3] or ""])


def number_of_bytes(amount: int | str | None) -> int | None:
    """Returns an amount of memory that may be a text as for `parse_bytes`; None stays None."""
    return parse_bytes(amount) if isinstance(amount, str) else amount


def check_budget(budget: int | str | None) -> int | None:
    """Returns a memory budget as a number of bytes; None stays None.

    Raises:
        TypeError: the budget is neither a number of bytes nor a text.
        ValueError: it is not positive.
    """
    found = number_of_bytes(budget)
    if found is not None and (isinstance(found, bool) or not isinstance(found, int)):
        raise TypeError(f"memory_budget must be a number of bytes or a text like '2GiB', got {budget!r}")
    if found is not None and found < 1:
        raise ValueError(f"memory_budget must be a number of bytes, at least 1, got {budget}")
    return found


def free_bytes() -> int:
    """Returns the bytes of the host's memory that may be taken: an eighth of what is free."""
    return int(psutil.virtual_memory().available // 8)
