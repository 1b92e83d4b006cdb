"""Stored results of other benchmarks, as the pages of publications need them.

A figure that was not measured is None and shows as a dash.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from benchmark.support.rounds import typical
from benchmark.support.tables import Result, of_ranks

DASH = "-"


def shown(value: float | None, form: str) -> str:
    """Returns a number in a format, or a dash."""
    return DASH if value is None else format(value, form)


def times(value: float | None) -> str:
    """Returns a ratio as a text like 1.5x, or a dash."""
    return DASH if value is None else f"{value:.1f}x"


def ratio(one: float | None, other: float | None) -> float | None:
    """Returns a quotient, None where a figure is missing."""
    return None if one is None or not other else one / other


@dataclass(frozen=True)
class Seconds:
    """The seconds of an epoch: the slowest rank's for all, and means over ranks of its parts.

    Attributes:
        preparation, forward, backward, epoch: the parts and the whole.
        sample, fetch: what of preparation is known of sampling, and of fetching features.
    """

    preparation: float
    forward: float
    backward: float
    epoch: float
    sample: float | None = None
    fetch: float | None = None

    @classmethod
    def of(cls, entries: Sequence[Result]) -> Seconds | None:
        """Returns the figures over rounds, None without any that the quiet machine measured."""
        entries = quiet(entries)
        if not entries:
            return None
        theirs = "sample" in entries[0]["of_ranks"][0]["phases"]
        before = ("sample", "features") if theirs else ("prepare",)

        def phase(*names: str) -> float:
            return typical(sum(mean(of_ranks(one, "phases", name)) for name in names) for one in entries)

        whole = typical(max(of_ranks(one, "wall")) for one in entries)
        parts: tuple[float | None, float | None] = (None, None)
        if theirs:
            parts = phase("sample"), phase("features")
        elif "stats" in entries[0]["of_ranks"][0]:  # of two epochs
            both = [
                typical(mean(of_ranks(one, "stats", name)) for one in entries) / 2
                for name in ("sample_seconds", "fetch_seconds")
            ]
            parts = both[0], both[1]
        return cls(phase(*before), phase("forward"), phase("backward"), whole, *parts)


def part(seconds: Seconds | None, name: str) -> float | None:
    """Returns a part of the seconds, None where they are not known."""
    return None if seconds is None else getattr(seconds, name)


def quiet(entries: Sequence[Result]) -> list[Result]:
    """Returns the entries whose seconds mean something: nothing else ran on the machine."""
    return [one for one in entries if not one.get("busy")]


class Stored:
    """The results in a folder."""

    def __init__(self, results: Path) -> None:
        self._results = results

    def read(self, name: str) -> Result:
        """Returns the content of a result file; empty where it is not there."""
        path = self._results / f"{name}.json"
        content: Result = json.loads(path.read_text()) if path.is_file() else {}
        return content

    def series(self, name: str, part: str) -> list[Result]:
        """Returns the entries of a part of a result."""
        entries: list[Result] = self.read(name).get("parts", {}).get(part, {}).get("series", [])
        return entries

    def chosen(self, name: str, part: str, **values: Any) -> list[Result]:
        """Returns those entries of a part that have some values."""
        found = self.series(name, part)
        return [one for one in found if all(one[key] == value for key, value in values.items())]

    def total(self, entries: Sequence[Result], *path: str) -> float | None:
        """Returns the sum over ranks of a figure of the first entry."""
        return sum(of_ranks(entries[0], *path)) if entries else None

    def gain(self, name: str, peer: str, ours: str, **values: Any) -> float | None:
        """Returns how many times as fast a contestant is as a peer, per minibatch.

        Of the series that have some values and both contestants, the one counts in which ours took
        the least time.
        """

        def seconds(series: Result, contestant: str) -> float:
            found: float = series["contestants"][contestant]["figures"]["wall_per_minibatch"]
            return found

        series = [one for one in self.read(name).get("series", []) if {peer, ours} <= set(one["contestants"])]
        series = [one for one in series if all(one[key] == value for key, value in values.items())]
        if not series:
            return None
        best = min(series, key=lambda one: seconds(one, ours))
        return seconds(best, peer) / seconds(best, ours)
