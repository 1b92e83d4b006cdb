"""Markdown tables, and what the tables of several experiments share."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

LOADS_PER_EDGE = (
    2.2  # random reads of the graph that an edge costs: its source, and its share of the list's bounds
)
OURS = "ours"
MIB = 2**20
#: The width of the pages.
COLUMNS = 98
Result = dict[str, Any]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a Markdown table; the first column is text, the others are numbers."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def paragraph(text: str) -> str:
    """Wraps a paragraph to the width of the pages."""
    return textwrap.fill(text, COLUMNS, break_on_hyphens=False)


def figures_of(series: Result) -> dict[str, dict[str, float]]:
    """Returns the figures of each contestant of a series."""
    return {name: contestant["figures"] for name, contestant in series["contestants"].items()}


def milliseconds(figures: dict[str, float] | None, seconds: str) -> str:
    """Returns a figure in milliseconds, or a dash if the side is absent."""
    return "-" if figures is None else f"{1e3 * figures[seconds]:,.1f}"


def setting(series: Result) -> str:
    """Returns the threads and the allocator of a series, in words."""
    threads = series["threads"]
    return f"{threads} thread{'s' if threads > 1 else ''}, malloc {series['malloc']}"


def absences(series: Iterable[Result]) -> str:
    """Returns one sentence for every contestant that could not take part."""
    reasons = {name: why for one in series for name, why in one["absent"].items()}
    return "".join(f"\n\n{paragraph(f'Not measured: {why}.')}" for why in reasons.values())


def size_name(macrobatch: int) -> str:
    """Returns the macrobatch size in words."""
    return str(macrobatch) if macrobatch else "all"


def by(series: list[Result], key: str) -> Iterator[tuple[Any, list[Result]]]:
    """Yields the entries of each value of ``key``, in order of first appearance."""
    for value in dict.fromkeys(one[key] for one in series):
        yield value, [one for one in series if one[key] == value]


def of_ranks(entry: Result, *path: str) -> list[float]:
    """Returns one figure of every rank."""
    values = entry["of_ranks"]
    for name in path:
        values = [value[name] for value in values]
    return [float(value) for value in values]
