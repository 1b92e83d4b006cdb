"""Table and picture of what was measured."""

from __future__ import annotations

from typing import Any

Result = dict[str, Any]
OPERATIONS = ("all-to-all", "all-reduce")


def table(result: Result) -> str:
    """Microseconds and GB/s of the slowest rank, a table for each operation and number of ranks."""
    parts = []
    for operation in OPERATIONS:
        for ranks in sorted({run["ranks"] for run in result["runs"]}):
            runs = [run for run in result["runs"] if run["ranks"] == ranks]
            names = [cell for run in runs for cell in (f"{run['way']}, us", "GB/s")]
            lines = [f"| {operation}, {ranks} ranks | " + " | ".join(names) + " |"]
            lines.append("| --- |" + " ---: |" * len(names))
            for place, size in enumerate(_sizes(runs[0], operation)):
                cells = [_cells(_points(run, operation)[place], operation, ranks) for run in runs]
                lines.append(f"| {size_name(size)} | " + " | ".join(cells) + " |")
            parts.append("\n".join(lines))
    return "\n\n".join(parts)


def plot(result: Result) -> Any:
    """GB/s against the size, a panel for each operation and number of ranks."""
    import matplotlib.pyplot as plt

    counts = sorted({run["ranks"] for run in result["runs"]})
    figure, axes = plt.subplots(len(counts), 2, figsize=(10, 3.4 * len(counts)), squeeze=False)
    for row, ranks in zip(axes, counts, strict=True):
        for one, operation in zip(row, OPERATIONS, strict=True):
            for run in result["runs"]:
                if run["ranks"] == ranks:
                    points = _points(run, operation)
                    speeds = [_speed(point, operation, ranks) for point in points]
                    one.loglog([point["bytes"] for point in points], speeds, marker="o", label=run["way"])
            one.set_title(f"{operation}, {ranks} ranks", fontsize=10)
            one.set_xlabel("bytes of a rank")
            one.set_ylabel("GB/s")
            one.legend(fontsize=8)
    return figure


def size_name(size: int) -> str:
    """Returns a size in words, such as "64 KiB"."""
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def _points(run: Result, operation: str) -> list[Result]:
    return [point for point in run["series"] if point["operation"] == operation]


def _sizes(run: Result, operation: str) -> list[int]:
    return [point["bytes"] for point in _points(run, operation)]


def _cells(point: Result, operation: str, ranks: int) -> str:
    return f"{point['seconds'] * 1e6:,.0f} | {_speed(point, operation, ranks):.3g}"


def _speed(point: Result, operation: str, ranks: int) -> float:
    """Returns GB/s of the bytes that a rank must send at least (twice as many for a sum)."""
    times = 2 if operation == "all-reduce" else 1
    return float(times * point["bytes"] * (ranks - 1) / ranks / point["seconds"] / 1e9)
