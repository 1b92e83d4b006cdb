"""The tables of PyG's scripts."""

from __future__ import annotations

from typing import Any

from benchmark.pyg_scripts.examples import falls
from benchmark.support.tables import Result, paragraph
from benchmark.support.tables import table as markdown


def table(result: Result) -> str:
    """Returns a table for each script, and one for the examples."""
    options = result["options"]
    parts = [
        paragraph(
            f"Graphs of benchmark scripts have {100 * options['scale']:g} % of the size of the real ones; "
            f"{options['threads']} thread(s), means of {options['rounds']} runs of each script."
        )
    ]
    parts += [paragraph(f"Not measured: {why}.") for why in result["absent"].values()]
    for name, run in result["runs"].items():
        name += " (while the machine did other work)" if run.get("busy") else ""
        if run["group"] == "examples":
            parts.append(f"**examples**\n\n{_examples(run['rows'])}")
            continue
        parts.append(f"**{name}**\n\n{_figures(run['rows'])}" if run["rows"] else f"**{name}**")
        parts += [paragraph(f"{side} failed: {why}") for side, why in run["errors"].items()]
    return "\n\n".join(parts)


def _figures(rows: list[dict[str, Any]]) -> str:
    unit = "samples/s" if rows[0]["is_rate"] else "s per pass"
    cells = [
        [row["what"], *(_number(row.get(side)) for side in ("pyg", "ours")), _times(row)] for row in rows
    ]
    return markdown([unit, "PyG's loader", "ours", "times as fast"], cells)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _times(row: dict[str, Any]) -> str:
    if "pyg" not in row or "ours" not in row or not min(row["pyg"], row["ours"]):
        return "-"
    ratio = row["ours"] / row["pyg"]
    return f"{ratio if row['is_rate'] else 1 / ratio:.1f}x"


def _examples(rows: list[dict[str, Any]]) -> str:
    cells = []
    for row in rows:
        if "error" in row:
            cells.append([row["name"], "-", "-", f"failed: {row['error']}"])
            continue
        third = max(1, len(row["losses"]) // 3)
        first, last = (sum(some) / third for some in (row["losses"][:third], row["losses"][-third:]))
        loss = f"{first:.3f} to {last:.3f}" + ("" if falls(row["losses"]) else " (does not fall)")
        same = "all" if row["different"] == 0 else "not all"
        cells.append([row["name"], str(row["batches"]), same, loss])
    return markdown(
        ["", "batches", "with PyG's names, dtypes and shapes", "loss, first to last third"], cells
    )
