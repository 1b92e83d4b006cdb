"""The page of publications: tables between its comments, and a picture for each publication.

A figure that was not measured is None and shows as a dash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.support.cli import read_json
from benchmark.support.plots import OURS_COLOUR, PEER_COLOUR, save, subplots
from benchmark.support.tables import (
    SECONDS,
    Result,
    figure,
    figures_of,
    filled,
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


def epoch_parts(entries: Sequence[Result]) -> dict[str, float]:
    """Returns the seconds of an epoch, the slowest rank's, and of its parts, means over ranks, by
    the names of `published.PARTS`; nothing without entries that a quiet machine measured."""
    entries = quiet(entries)
    if not entries:
        return {}

    def phases(*names: str) -> float:
        return typical(sum(one["phases"][name] for name in names) for one in entries)

    found = {name: phases(name) for name in ("forward", "backward")}
    found["epoch"] = over_rounds(entries, "wall")
    if "sample" in entries[0]["phases"]:  # DistDGL's
        found |= {"topology": phases("sample"), "features": phases("features")}
        return {**found, "preparation": phases("sample", "features")}
    if "stats" in entries[0]:  # of two epochs
        for part, name in (("topology", "sample_seconds"), ("features", "fetch_seconds")):
            found[part] = over_rounds(entries, "stats", name) / 2
    return {**found, "preparation": phases("prepare")}


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
        return read_json(self._results / f"{name}.json")

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

        series = self.read(name).get("series", [])
        chosen = [one for one in series if all(one[key] == value for key, value in values.items())]
        found = [one for one in map(figures_of, chosen) if peer in one and ours in one]
        if not found:
            return None
        best = min(found, key=lambda one: one[ours][SECONDS])
        return best[peer][SECONDS] / best[ours][SECONDS]


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
    tables: Sequence[Callable[[Stored], Compared]]  # make its tables from the stored results
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

    def tables(name: str) -> str:
        source = sources[name]
        picture = f"![Published figures of {source.title} and ours](assets/papers-{source.name}.png)"
        return "\n\n".join([picture, *(table(stored).markdown() for table in source.tables)])

    return filled(page.read_text(), "papers", tables)
