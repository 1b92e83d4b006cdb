"""A section of the page: tables with captions, and a picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt

from benchmark.papers.stored import Stored
from benchmark.support.plots import OURS_COLOUR, PEER_COLOUR
from benchmark.support.tables import paragraph
from benchmark.support.tables import table as markdown


@dataclass(frozen=True)
class Compared:
    """A table of a publication with ours beside it.

    Attributes:
        title: the place in the publication and the subject.
        caption: what differs: machine, graph, scale.
        header: the columns; the first is text.
        rows: the lines.
    """

    title: str
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """Returns the table with its title and caption."""
        return f"### {self.title}\n\n{paragraph(self.caption)}\n\n{markdown(self.header, self.rows)}"


@dataclass(frozen=True)
class Bar:
    """A pair of bars.

    Attributes:
        name: of the quantity.
        published: what was published, None where it was not.
        ours: what was measured here, None where it was not.
    """

    name: str
    published: float | None
    ours: float | None


@dataclass(frozen=True)
class Panel:
    """A panel of a picture: pairs of bars of one quantity."""

    title: str
    unit: str
    bars: Sequence[Bar]


@dataclass(frozen=True)
class Source:
    """A publication.

    Attributes:
        name: of the section's markers and of its picture.
        title: its heading.
        tables: makes its tables from the stored results.
        panels: makes its picture from them.
    """

    name: str
    title: str
    tables: Callable[[Stored], Sequence[Compared]]
    panels: Callable[[Stored], Sequence[Panel]]


def draw(panels: Sequence[Panel]) -> plt.Figure:
    """Draws panels side by side; published bars are grey, ours are blue.

    Panels without any figure are left out.
    """
    panels = [one for one in panels if any(bar.published or bar.ours for bar in one.bars)]
    figure, axes = plt.subplots(1, len(panels), figsize=(4.4 * len(panels), 3.4), squeeze=False)
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
    figure.tight_layout()
    return figure
