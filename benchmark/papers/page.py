"""The page of publications: tables between its comments, and a picture for each publication.

A figure that was not measured is None and shows as a dash.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.support.plots import OURS_COLOUR, PEER_COLOUR, save, subplots
from benchmark.support.tables import (
    SECONDS,
    Result,
    figure,
    figures_of,
    markdown,
    over_rounds,
    paragraph,
    typical,
)

DASH = "-"


def shown(value: float | None, form: str) -> str:
    return DASH if value is None else format(value, form)


def times(value: float | None) -> str:
    return DASH if value is None else f"{value:.1f}x"


def ratio(one: float | None, other: float | None) -> float | None:
    return None if one is None or not other else one / other


@dataclass(frozen=True)
class Seconds:
    """The seconds of an epoch: the slowest rank's for all, and means over ranks of its parts."""

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
        theirs = "sample" in entries[0]["phases"]
        before = ("sample", "features") if theirs else ("prepare",)

        def phase(*names: str) -> float:
            return typical(sum(one["phases"][name] for name in names) for one in entries)

        whole = over_rounds(entries, "wall")
        parts: tuple[float | None, float | None] = (None, None)
        if theirs:
            parts = phase("sample"), phase("features")
        elif "stats" in entries[0]:  # of two epochs
            sample, fetch = (
                over_rounds(entries, "stats", name) / 2 for name in ("sample_seconds", "fetch_seconds")
            )
            parts = sample, fetch
        return cls(phase(*before), phase("forward"), phase("backward"), whole, *parts)


def part(seconds: Seconds | None, name: str) -> float | None:
    return None if seconds is None else getattr(seconds, name)


def quiet(entries: Sequence[Result]) -> list[Result]:
    return [one for one in entries if not one.get("busy")]


def where(stored: Stored, part: str) -> str:
    """Returns the ranks and the graph of a part of this benchmark's own results, in words."""
    found = stored.read("papers").get("parts", {}).get(part)
    if found is None:
        return "not measured yet"
    return f"4 ranks on {found['network']} links, a generated graph of {found['graph']['nodes']:,} nodes"


class Stored:
    """The results in a folder."""

    def __init__(self, results: Path) -> None:
        self._results = results

    def read(self, name: str) -> Result:
        path = self._results / f"{name}.json"
        content: Result = json.loads(path.read_text()) if path.is_file() else {}
        return content

    def series(self, name: str, part: str) -> list[Result]:
        entries: list[Result] = self.read(name).get("parts", {}).get(part, {}).get("series", [])
        return entries

    def chosen(self, name: str, part: str, **values: Any) -> list[Result]:
        found = self.series(name, part)
        return [one for one in found if all(one[key] == value for key, value in values.items())]

    def total(self, entries: Sequence[Result], *path: str) -> float | None:
        return entries[0]["ranks"] * figure(entries[0], *path) if entries else None

    def gain(self, name: str, peer: str, ours: str, **values: Any) -> float | None:
        """Returns how many times as fast a contestant is as a peer, per minibatch."""

        def seconds(series: Result, contestant: str) -> float:
            found: float = figures_of(series)[contestant][SECONDS]
            return found

        series = [one for one in self.read(name).get("series", []) if {peer, ours} <= set(one["contestants"])]
        series = [one for one in series if all(one[key] == value for key, value in values.items())]
        if not series:
            return None
        best = min(series, key=lambda one: seconds(one, ours))
        return seconds(best, peer) / seconds(best, ours)


@dataclass(frozen=True)
class Compared:
    """A table of a publication with ours beside it."""

    title: str  # the place in the publication and the subject
    caption: str  # what differs: machine, graph, scale
    header: Sequence[str]  # the columns; the first is text
    rows: Sequence[Sequence[str]]  # the lines

    def markdown(self) -> str:
        return f"### {self.title}\n\n{paragraph(self.caption)}\n\n{markdown(self.header, self.rows)}"


@dataclass(frozen=True)
class Bar:
    """A pair of bars."""

    name: str  # of the quantity
    published: float | None  # what was published, None where it was not
    ours: float | None  # what was measured here, None where it was not


@dataclass(frozen=True)
class Panel:
    """A panel of a picture: pairs of bars of one quantity."""

    title: str
    unit: str
    bars: Sequence[Bar]


@dataclass(frozen=True)
class Source:
    """A publication."""

    name: str  # of the section's markers and of its picture
    title: str  # its heading
    tables: Callable[[Stored], Sequence[Compared]]  # makes its tables from the stored results
    panels: Callable[[Stored], Sequence[Panel]]  # makes its picture from them


def draw(panels: Sequence[Panel]) -> Any:
    """Draws panels side by side; published bars are grey, ours are blue."""
    panels = [one for one in panels if any(bar.published or bar.ours for bar in one.bars)]
    figure, axes = subplots(1, len(panels), figsize=(4.4 * len(panels), 3.4))
    for one, panel in zip(axes.flat, panels, strict=True):
        for shift, colour, label, values in (
            (-0.2, PEER_COLOUR, "published", [bar.published for bar in panel.bars]),
            (0.2, OURS_COLOUR, "measured here", [bar.ours for bar in panel.bars]),
        ):
            known = [(at + shift, value) for at, value in enumerate(values) if value is not None]
            if not known:
                continue
            places, heights = [at for at, _ in known], [value for _, value in known]
            bars = one.bar(places, heights, 0.38, color=colour, label=label)
            one.bar_label(bars, [f"{value:.3g}" for _, value in known], fontsize=7, padding=2)
        names = [bar.name.replace(", ", "\n") for bar in panel.bars]
        one.set_xticks(range(len(names)), names, fontsize=7)
        one.set_title(panel.title, fontsize=9)
        one.set_ylabel(panel.unit, fontsize=8)
        one.set_xlim(-0.6, len(names) - 0.4)
        one.margins(y=0.15)
        one.legend(fontsize=7)
    return figure


def render(page: Path, results: Path, sources: Mapping[str, Source]) -> str:
    """Draws the pictures of publications, by name; returns the page with their tables."""
    stored = Stored(results)
    for source in sources.values():
        save(draw(source.panels(stored)), page.parent / "assets" / f"papers-{source.name}.png")

    def replaced(match: re.Match[str]) -> str:
        source = sources[match[1]]
        picture = f"![Published figures of {source.title} and ours](assets/papers-{source.name}.png)"
        tables = "\n\n".join(one.markdown() for one in source.tables(stored))
        return f"<!-- papers:{match[1]} -->\n\n{picture}\n\n{tables}\n\n<!-- end -->"

    return re.sub(r"<!-- papers:(\w+) -->.*?<!-- end -->", replaced, page.read_text(), flags=re.DOTALL)
