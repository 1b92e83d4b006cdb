"""The loader's page faults, allocations and growth once it is warm.

Two parts. In the first, the loaders and our sampler alone do a few rounds with a counter preloaded
under the C allocator. In the second, our loader runs for thousands of minibatches, and resident
memory is read after every hundred; growth is the slope of a straight line through the readings
after the first 500.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmark.support.cli import BenchmarkRun, parser
from benchmark.support.harness import run_series
from benchmark.support.native import compiled
from benchmark.support.settings import ProcessSetting

COLUMNS = [
    ("ours", "ours", "loading"),
    ("ours, sampling alone", "ours", "sampling"),
    ("PyG NeighborLoader", "pyg", "loading"),
]
SETTLING = 500


def growth(rounds: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Returns the resident MiB gained after the first 500 minibatches: slope and difference."""
    at = np.cumsum([r["minibatches"] for r in rounds])
    mebibytes = np.array([r["resident"] for r in rounds]) / 2**20
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
    long = run_series([ours], hundreds, setting, rounds=parsed.long // 100, warmup=0)
    found = {"rounds": long.rounds["ours"], "growth": growth(long.rounds["ours"])}
    run.store("memory", {"series": series, "long": found})


if __name__ == "__main__":
    main()
