"""The parts that the pictures of several experiments share.

matplotlib is imported where something is drawn: interpreters of peers need not have it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmark.support.tables import Result

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
