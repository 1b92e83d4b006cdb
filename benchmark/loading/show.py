"""The table and the picture of the loaders."""

from __future__ import annotations

from benchmark.support.plots import series_plot
from benchmark.support.tables import OURS, Result, absences, figures_of, milliseconds, setting
from benchmark.support.tables import table as markdown


def table(result: Result) -> str:
    """Returns one row per setting and peer, with our own figures of the same rounds."""
    rows = []
    for series in result["series"]:
        found = figures_of(series)
        ours = found.pop(OURS, None)
        if ours and not found:  # no peer is installed: our own figures still stand
            rows.append([f"{setting(series)}: no peer", *own_figures(ours)])
        for name, figures in found.items():
            rows.append(
                [
                    f"{setting(series)}: {name}",
                    *(milliseconds(one, "wall_per_minibatch") for one in (figures, ours)),
                    *(milliseconds(one, "cpu_per_minibatch") for one in (figures, ours)),
                    *(f"{one['edges_per_minibatch']:,.0f}" if one else "-" for one in (figures, ours)),
                    times(ours, figures, "wall_per_minibatch"),
                    times(ours, figures, "cpu_per_minibatch"),
                ]
            )
    header = ["", "wall ms", "ours", "CPU ms", "ours", "edges", "ours", "times as fast, wall", "CPU"]
    return markdown(header, rows) + "\n\nAll figures are per minibatch." + absences(result["series"])


def times(ours: dict[str, float] | None, other: dict[str, float], seconds: str) -> str:
    """Returns how many times as fast ours is, by the figure named ``seconds``."""
    return "-" if ours is None else f"{other[seconds] / ours[seconds]:.1f}x"


def own_figures(ours: dict[str, float]) -> list[str]:
    """Returns the cells of a row of `table` without a peer."""
    wall, cpu = milliseconds(ours, "wall_per_minibatch"), milliseconds(ours, "cpu_per_minibatch")
    return ["-", wall, "-", cpu, "-", f"{ours['edges_per_minibatch']:,.0f}", "-", "-"]


plot = series_plot("wall_per_minibatch", 1e3, "ms per minibatch")
