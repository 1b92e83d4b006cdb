"""Markdown tables, and the figures that they show of several rounds.

This file imports only the standard library, so that it loads in every interpreter that takes part.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

#: A median of fewer rounds says little: one round beside other work moves it.
FOR_A_MEDIAN = 9
#: The random reads of the graph that an edge costs: its source, and its share of the list's bounds.
LOADS_PER_EDGE = 2.2
OURS = "ours"
MIB = 2**20
#: The figure that most tables compare.
SECONDS = "wall_per_minibatch"
#: The width of the pages.
COLUMNS = 98
Result = dict[str, Any]


def typical(costs: Iterable[float]) -> float:
    found = list(costs)
    return median(found) if len(found) >= FOR_A_MEDIAN else min(found)


def in_words(rounds: int) -> str:
    if rounds >= FOR_A_MEDIAN:
        return f"medians of {rounds} rounds"
    return f"the least of {rounds} rounds" if rounds > 1 else "one round"


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def paragraph(text: str) -> str:
    return textwrap.fill(text, COLUMNS, break_on_hyphens=False)


def filled(page: str, kind: str, text_of: Callable[[str], str]) -> str:
    """Returns a page with new text between ``<!-- KIND:NAME -->``, or ``<!-- KIND -->``, and
    ``<!-- end -->``, made from the name."""

    def replaced(match: re.Match[str]) -> str:
        return f"{match[1]}\n\n{text_of(match[2])}\n\n<!-- end -->"

    return re.sub(rf"(<!-- {kind}:?(\w*) -->).*?<!-- end -->", replaced, page, flags=re.DOTALL)


def figures_of(series: Result) -> dict[str, dict[str, float]]:
    return {name: contestant["figures"] for name, contestant in series["contestants"].items()}


def milliseconds(figures: dict[str, float] | None, seconds: str = SECONDS) -> str:
    return "-" if figures is None else f"{1e3 * figures[seconds]:,.1f}"


def times(series: Result, script: str, other: str) -> str:
    """Returns how many times as fast a script is as another, or a dash."""
    figures = figures_of(series)
    if script not in figures or other not in figures:
        return "-"
    return f"{figures[other][SECONDS] / figures[script][SECONDS]:.1f}x"


def threads_in_words(threads: int) -> str:
    return f"{threads} thread{'s' if threads > 1 else ''}"


def setting(series: Result) -> str:
    return f"{threads_in_words(series['threads'])}, malloc {series['malloc']}"


def absences(series: Iterable[Result]) -> str:
    reasons = {name: why for one in series for name, why in one["absent"].items()}
    return "".join(f"\n\n{paragraph(f'Not measured: {why}.')}" for why in reasons.values())


@dataclass
class Line:
    """A line of a table whose contestants were measured in several series, ours in each of them."""

    name: str  # what is measured
    ours: dict[str, float] | None = None
    seconds: dict[str, float] = field(default_factory=dict)  # the least seconds of each contestant
    times: dict[str, float] = field(default_factory=dict)

    def add(self, figures: dict[str, dict[str, float]]) -> None:
        """Takes the figures of a series."""
        ours = figures.get(OURS)
        for name, one in figures.items():
            self.seconds[name] = min(one[SECONDS], self.seconds.get(name, one[SECONDS]))
            if ours is not None:
                self.times[name] = one[SECONDS] / ours[SECONDS]
        if ours is not None and (self.ours is None or ours[SECONDS] < self.ours[SECONDS]):
            self.ours = ours

    def cells(self, name: str, form: str = ",.0f") -> tuple[str, str]:
        """Returns the milliseconds of a contestant, and how many times as fast ours is."""
        seconds, times = self.seconds.get(name), self.times.get(name)
        return (
            "-" if seconds is None else format(1e3 * seconds, form),
            "-" if times is None else f"{times:.1f}x",
        )


def size_name(macrobatch: int) -> str:
    return str(macrobatch) if macrobatch else "all"


def by(series: Iterable[Result], key: str) -> Iterator[tuple[Any, list[Result]]]:
    found = list(series)
    for value in dict.fromkeys(one[key] for one in found):
        yield value, [one for one in found if one[key] == value]


def over_rounds(entries: Iterable[Result], *path: str) -> float:
    return typical(figure(one, *path) for one in entries)


def figure(entry: Result, *path: str) -> float:
    """Returns a figure of an entry; ``path`` leads to it."""
    value: Any = entry
    for name in path:
        value = value[name]
    return float(value)
