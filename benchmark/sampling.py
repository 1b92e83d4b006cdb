"""Neighbour sampling alone: edges per second, against pyg-lib, DGL and the memory's limit."""

from __future__ import annotations

from collections.abc import Sequence

from benchmark.support.cli import BenchmarkRun, parser
from benchmark.support.machine import gather_limit
from benchmark.support.plots import series_plot
from benchmark.support.tables import (
    LOADS_PER_EDGE,
    OURS,
    Result,
    absences,
    figures_of,
    markdown,
    paragraph,
    threads_in_words,
)

COLUMNS = [
    ("ours", "ours", "sampling"),
    ("ours, CSC only", "ours", "sampling-csc"),
    ("pyg-lib", "pyg", "sampling"),
    ("pyg-lib, 32-bit ids", "pyg", "sampling-32"),
    ("DGL sample + to_block", "dgl", "sampling"),
    ("DGL fused", "dgl", "sampling-fused"),
]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, then stores the JSON file."""
    options = parser(__doc__ or "", batches=16, rounds=9, threads=(1, 2))
    options.set_defaults(malloc=["default"])
    run = BenchmarkRun.parse(options.parse_args(arguments))
    threads = sorted({setting.threads for setting in run.settings})
    before = [gather_limit(count) for count in threads]
    series = run.measure(COLUMNS)
    after = [gather_limit(count) for count in threads]
    # The better of two measurements is the limit: a busy machine must not flatter us.
    limits = [
        max(pair, key=lambda limit: limit["loads_per_second"]) for pair in zip(before, after, strict=True)
    ]
    run.store("sampling", {"series": series, "gather_limit": limits})


def table(result: Result) -> str:
    """Returns rates of edges, and their share of the gather limit of the same run."""
    rows = []
    limits = {limit["threads"]: limit["loads_per_second"] for limit in result["gather_limit"]}
    for series in result["series"]:
        found, limit = figures_of(series), limits[series["threads"]]
        ours = found.get(OURS)
        for name, figures in found.items():
            rate = figures["edges_per_second"]
            rows.append(
                [
                    f"{threads_in_words(series['threads'])}: {name}",
                    f"{rate / 1e6:.2f}",
                    f"{figures['edges_per_cpu_second'] / 1e6:.2f}",
                    f"{figures['edges_per_minibatch']:,.0f}",
                    f"{ours['edges_per_second'] / rate:.1f}x" if ours else "-",
                    f"{100 * LOADS_PER_EDGE * rate / limit:.0f} %",
                ]
            )
    header = ["", "M edges/s", "M edges per CPU second", "edges per minibatch"]
    header += ["ours is faster by", "of the gather limit"]
    limit_text = ", ".join(f"{rate / 1e6:.0f} M on {count} thread(s)" for count, rate in limits.items())
    note = f"Gather limit, random 8-byte loads per second: {limit_text}; {LOADS_PER_EDGE} loads per edge."
    return markdown(header, rows) + f"\n\n{paragraph(note)}" + absences(result["series"])


plot = series_plot("edges_per_second", 1e-6, "million edges per second")
