"""The parts that the pictures of several experiments share.

matplotlib is imported where something is drawn: interpreters of peers need not have it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from benchmark.support.tables import SECONDS, Result, figures_of

OURS_COLOUR, PEER_COLOUR = "#1f77b4", "#b0b0b0"
#: Pictures have this many colours and pixels per inch, so that they are small.
PALETTE, DPI = 32, 100


def subplots(rows: int = 1, columns: int = 1, **options: Any) -> tuple[Any, Any]:
    """Returns a figure and its panels, always as an array of rows and columns."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    return plt.subplots(rows, columns, squeeze=False, **options)


def save(figure: Any, path: Path) -> None:
    """Writes a picture as a PNG of few colours, and closes it."""
    import matplotlib.pyplot as plt
    from PIL import Image

    figure.tight_layout()
    whole = io.BytesIO()
    figure.savefig(whole, dpi=DPI, metadata={"Software": None})
    plt.close(figure)
    picture = Image.open(whole).convert("RGB")
    picture.quantize(PALETTE, dither=Image.Dither.NONE).save(path, optimize=True)


def bars(panel: Any, names: Sequence[str], values: Sequence[float], label: str, title: str) -> None:
    """Draws horizontal bars from the top, ours in colour."""
    names, values = names[::-1], values[::-1]
    colours = [OURS_COLOUR if name.startswith("ours") else PEER_COLOUR for name in names]
    drawn = panel.barh(names, values, color=colours)
    texts = [f"{value:,.0f}" if value >= 100 else f"{value:.1f}" for value in values]
    panel.bar_label(drawn, labels=texts, padding=3)
    panel.margins(x=0.25)
    panel.set_xlabel(label)
    panel.set_title(title, fontsize=10)


def steps_plot(
    names: Sequence[str], peers: Collection[str], title: Callable[[Result], str]
) -> Callable[[Result], Any]:
    """Returns a function that draws a panel per series, with the ms per step of contestants."""

    def plot(result: Result) -> Any:
        found = result["series"]
        rows = -(-len(found) // 2)
        figure, axes = subplots(rows, 2, figsize=(11, 2.2 * rows))
        for panel, series in zip(axes.flat, found, strict=False):
            seconds = {name: one[SECONDS] for name, one in figures_of(series).items() if name in names}
            shown = [name for name in names if name in seconds]
            bars(panel, shown, [1e3 * seconds[name] for name in shown], "ms per step", title(series))
            for bar, name in zip(panel.patches, shown[::-1], strict=True):
                bar.set_color(PEER_COLOUR if name in peers else OURS_COLOUR)
        for panel in list(axes.flat)[len(found) :]:
            panel.set_visible(False)
        return figure

    return plot


def series_plot(quantity: str, scale: float, label: str) -> Callable[[Result], Any]:
    """Returns a function that draws a panel of bars for each setting of a result."""

    def plot(result: Result) -> Any:
        settings = _by_setting(result)
        rows = -(-len(settings) // 2)
        figure, axes = subplots(rows, min(2, len(settings)), figsize=(11, 3 * rows))
        for panel, series in zip(axes.flat, settings, strict=False):
            found = series["contestants"]
            names = sorted(found, key=lambda name: not name.startswith("ours"))
            values = [scale * found[name]["figures"][quantity] for name in names]
            bars(panel, names, values, label, f"{series['threads']} thread(s), malloc {series['malloc']}")
        return figure

    return plot


def _by_setting(result: Result) -> list[Result]:
    merged: dict[tuple[int, str], Result] = {}
    for series in result["series"]:
        one = merged.setdefault((series["threads"], series["malloc"]), {**series, "contestants": {}})
        one["contestants"] = {**series["contestants"], **one["contestants"]}
    return list(merged.values())
