"""The table of the rates of single operators."""

from __future__ import annotations

from benchmark.support.tables import Result
from benchmark.support.tables import table as markdown


def table(result: Result) -> str:
    """Returns the rates of operators: bytes of gathered rows, or operations."""
    lines = []
    for threads, cases in result["cases"].items():
        for case in cases:
            unit = "GFLOP/s" if case["name"].startswith("linear") else "GB/s"
            lines.append(
                [
                    f"{threads} thread{'s' if threads != '1' else ''}, {case['dtype']}: {case['name']}",
                    case["by"],
                    f"{1e3 * case['seconds']:,.1f}",
                    f"{case['rate'] / 1e9:,.1f} {unit}",
                ]
            )
    return markdown(["", "by", "ms", "rate"], lines)
