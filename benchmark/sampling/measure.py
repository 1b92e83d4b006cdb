"""Neighbour sampling alone: edges per second, against pyg-lib, DGL and the memory's limit."""

from __future__ import annotations

from collections.abc import Sequence

from benchmark.support.cli import BenchmarkRun, parser
from benchmark.support.native import gather_limit

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


if __name__ == "__main__":
    main()
