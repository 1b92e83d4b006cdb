"""Iterating the loader with features and labels: ours against PyG's NeighborLoader."""

from __future__ import annotations

from collections.abc import Sequence

from benchmark.support.cli import BenchmarkRun, parser
from benchmark.support.plots import series_plot
from benchmark.support.tables import (
    OURS,
    SECONDS,
    Result,
    absences,
    figures_of,
    markdown,
    milliseconds,
    setting,
)

COLUMNS = [("ours", "ours", "loading"), ("PyG NeighborLoader", "pyg", "loading")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, then stores the JSON file."""
    run = BenchmarkRun.parse(
        parser(__doc__ or "", batches=16, rounds=9, threads=(1, 2)).parse_args(arguments)
    )
    run.store("loading", {"series": run.measure(COLUMNS)})


def table(result: Result) -> str:
    """Returns one row per setting and peer, with our own figures of the same rounds."""
    rows = []
    for series in result["series"]:
        found = figures_of(series)
        ours = found.pop(OURS, None)
        peers: dict[str, dict[str, float] | None] = {**found} or {"no peer": None}
        for name, figures in peers.items():
            rows.append(
                [
                    f"{setting(series)}: {name}",
                    *(milliseconds(one) for one in (figures, ours)),
                    *(milliseconds(one, "cpu_per_minibatch") for one in (figures, ours)),
                    *(f"{one['edges_per_minibatch']:,.0f}" if one else "-" for one in (figures, ours)),
                    times(ours, figures, SECONDS),
                    times(ours, figures, "cpu_per_minibatch"),
                ]
            )
    header = ["", "wall ms", "ours", "CPU ms", "ours", "edges", "ours", "times as fast, wall", "CPU"]
    return markdown(header, rows) + "\n\nAll figures are per minibatch." + absences(result["series"])


def times(ours: dict[str, float] | None, other: dict[str, float] | None, seconds: str) -> str:
    return "-" if ours is None or other is None else f"{other[seconds] / ours[seconds]:.1f}x"


plot = series_plot(SECONDS, 1e3, "ms per minibatch")
