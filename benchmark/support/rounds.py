"""The figure that a table shows of several rounds.

This file imports only the standard library, so that it loads in every interpreter that takes part.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

#: A median of fewer rounds says little: one round beside other work moves it.
FOR_A_MEDIAN = 9


def typical(costs: Iterable[float]) -> float:
    """Returns the median of nine or more measurements, and the least of fewer.

    Other work on the machine only ever adds to a cost. So the least is the better figure of few.

    Args:
        costs: seconds, page faults or whatever else is better if it is less; at least one.
    """
    found = list(costs)
    return median(found) if len(found) >= FOR_A_MEDIAN else min(found)


def in_words(rounds: int) -> str:
    """Returns what `typical` showed of a number of rounds, for instance "medians of 9 rounds"."""
    if rounds >= FOR_A_MEDIAN:
        return f"medians of {rounds} rounds"
    return f"the least of {rounds} rounds" if rounds > 1 else "one round"
