"""The loader's page faults, allocations and growth once it is warm.

Two parts. In the first, the loaders and our sampler alone do a few rounds with a counter preloaded
under the C allocator. In the second, our loader runs for thousands of minibatches, and resident
memory is read after every hundred; growth is the slope of a straight line through the readings
after the first 500.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmark.support.cli import BenchmarkRun, parser
from benchmark.support.harness import Players, ProcessSetting
from benchmark.support.machine import compiled
from benchmark.support.tables import MIB, Result, absences, figures_of, markdown, paragraph, setting

COLUMNS = [
    ("ours", "ours", "loading"),
    ("ours, sampling alone", "ours", "sampling"),
    ("PyG NeighborLoader", "pyg", "loading"),
]
SETTLING = 500


def growth(readings: dict[str, list[int]]) -> dict[str, float]:
    """Returns the resident MiB gained after the first 500 minibatches: slope and difference."""
    at = np.cumsum(readings["minibatches"])
    mebibytes = np.array(readings["resident"]) / MIB
    at, mebibytes = at[at >= SETTLING], mebibytes[at >= SETTLING]
    slope = float(np.polyfit(at, mebibytes, 1)[0])
    return {
        "minibatches": int(at[-1] - at[0]),
        "slope_mib_per_1000": 1000 * slope,
        "end_minus_beginning_mib": float(mebibytes[-1] - mebibytes[0]),
        "highest_minus_lowest_mib": float(mebibytes.max() - mebibytes.min()),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, then stores the JSON file."""
    options = parser(__doc__ or "", batches=16, rounds=9, threads=(1,))
    options.set_defaults(malloc=["default"])
    options.add_argument("--long", type=int, default=2500, help="minibatches of the second part")
    parsed = options.parse_args(arguments)
    run = BenchmarkRun.parse(parsed)
    counter = str(compiled("allocation_count", "-shared", "-fPIC"))
    counted = replace(run, settings=[replace(setting, preload=counter) for setting in run.settings])
    series = counted.measure(COLUMNS, warmup=2)
    ours = run.peers.contestant("ours", "ours", "loading")
    hundreds = replace(run.options, batches=100)
    setting = ProcessSetting(run.settings[0].threads, run.settings[0].malloc)
    with Players([ours], setting) as players:
        rounds = players.series(hundreds, parsed.long // 100, warmup=0).rounds["ours"]
    readings = {name: [one[name] for one in rounds] for name in ("minibatches", "resident")}
    run.store("memory", {"series": series, "long": {**readings, "growth": growth(readings)}})


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
    header = ["per minibatch", "page faults", "allocations of a page or more"]
    header += ["their KiB", "all calls of the allocator"]
    growth = result["long"]["growth"]
    note = (
        f"Resident memory over {growth['minibatches']:,} minibatches after the first 500: slope "
        f"{growth['slope_mib_per_1000']:+.2f} MiB per 1,000 minibatches, end minus beginning "
        f"{growth['end_minus_beginning_mib']:+.2f} MiB."
    )
    return markdown(header, rows) + f"\n\n{paragraph(note)}" + absences(result["series"])
