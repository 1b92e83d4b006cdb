"""The table and the picture of the loader's memory."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt

from benchmark.support.plots import OURS_COLOUR
from benchmark.support.tables import Result, absences, figures_of, paragraph, setting
from benchmark.support.tables import table as markdown


def table(result: Result) -> str:
    """Tabulates faults and allocations per minibatch, then the growth of resident memory."""
    rows = []
    for series in result["series"]:
        for name, figures in figures_of(series).items():
            rows.append(
                [
                    f"{setting(series)}: {name}",
                    f"{figures['faults_per_minibatch']:,.1f}",
                    f"{figures['large_allocation_calls_per_minibatch']:,.2f}",
                    f"{figures['large_allocation_bytes_per_minibatch'] / 2**10:,.0f}",
                    f"{figures['allocation_calls_per_minibatch']:,.0f}",
                ]
            )
    header = [
        "per minibatch",
        "page faults",
        "allocations of a page or more",
        "their KiB",
        "all calls of the allocator",
    ]
    growth = result["long"]["growth"]
    note = (
        f"Resident memory over {growth['minibatches']:,} minibatches after the first 500: slope "
        f"{growth['slope_mib_per_1000']:+.2f} MiB per 1,000 minibatches, end minus beginning "
        f"{growth['end_minus_beginning_mib']:+.2f} MiB."
    )
    return markdown(header, rows) + f"\n\n{paragraph(note)}" + absences(result["series"])


def plot(result: Result) -> Any:
    """Draws the resident memory of our loader against the minibatches done."""
    rounds = result["long"]["rounds"]
    done, at = 0, []
    for one in rounds:
        done += one["minibatches"]
        at.append(done)
    figure, axes = plt.subplots(figsize=(5.5, 3.2))
    resident = [one["resident"] / 2**20 for one in rounds]
    axes.plot(at, resident, "o-", markersize=3, color=OURS_COLOUR)
    axes.set_ylim(0, 1.2 * max(resident))
    growth = result["long"]["growth"]["slope_mib_per_1000"]
    axes.set_title(f"after the first 500: {growth:+.2f} MiB per 1,000 minibatches", fontsize=10)
    axes.set_xlabel("minibatches")
    axes.set_ylabel("resident memory, MiB")
    return figure
