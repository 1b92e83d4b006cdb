"""Iterating the loader with features and labels: ours against PyG's NeighborLoader."""

from __future__ import annotations

from collections.abc import Sequence

from benchmark.support.cli import BenchmarkRun, parser

COLUMNS = [("ours", "ours", "loading"), ("PyG NeighborLoader", "pyg", "loading")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, then stores the JSON file."""
    run = BenchmarkRun.parse(
        parser(__doc__ or "", batches=16, rounds=9, threads=(1, 2)).parse_args(arguments)
    )
    run.store("loading", {"series": run.measure(COLUMNS)})


if __name__ == "__main__":
    main()
