"""Result files that are measured in pieces: what was not asked for stays."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

Series = dict[str, Any]


def merged(
    stored: Sequence[Series], found: Sequence[Series], key: Callable[[Series], Hashable]
) -> list[Series]:
    """Returns the stored series that were not measured again, and the new ones behind them.

    Args:
        stored: the series in the file.
        found: the new ones.
        key: returns what a series is of; two of the same key replace each other.
    """
    measured = set(map(key, found))
    return [*(one for one in stored if key(one) not in measured), *found]


def merged_graphs(stored: Sequence[Series], found: Sequence[Series]) -> list[Series]:
    """Returns the graphs of both, each name once."""
    return list({one["name"]: one for one in (*stored, *found)}.values())
