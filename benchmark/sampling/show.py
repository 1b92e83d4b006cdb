"""The table and the picture of sampling rates."""

from __future__ import annotations

from benchmark.support.plots import series_plot
from benchmark.support.tables import LOADS_PER_EDGE, OURS, Result, absences, figures_of, paragraph
from benchmark.support.tables import table as markdown


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
                    f"{series['threads']} thread{'s' if series['threads'] > 1 else ''}: {name}",
                    f"{rate / 1e6:.2f}",
                    f"{figures['edges_per_cpu_second'] / 1e6:.2f}",
                    f"{figures['edges_per_minibatch']:,.0f}",
                    f"{ours['edges_per_second'] / rate:.1f}x" if ours else "-",
                    f"{100 * LOADS_PER_EDGE * rate / limit:.0f} %",
                ]
            )
    header = [
        "",
        "M edges/s",
        "M edges per CPU second",
        "edges per minibatch",
        "ours is faster by",
        "of the gather limit",
    ]
    limit_text = ", ".join(f"{rate / 1e6:.0f} M on {count} thread(s)" for count, rate in limits.items())
    note = f"Gather limit, random 8-byte loads per second: {limit_text}; {LOADS_PER_EDGE} loads per edge."
    return markdown(header, rows) + f"\n\n{paragraph(note)}" + absences(result["series"])


plot = series_plot("edges_per_second", 1e-6, "million edges per second")
