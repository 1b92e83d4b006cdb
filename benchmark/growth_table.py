"""The table of the growth benchmark, in Markdown."""

from __future__ import annotations

from statistics import mean

from distributed_tables import MIB, SLACK, of_ranks
from tables import Result, table


def growth(result: Result) -> str:
    """A line for each graph, number of ranks and policy."""
    return table(
        [
            "nodes",
            "edges",
            "ranks, policy",
            "seconds",
            "M edges/s",
            "part, MiB",
            "peak, MiB",
            "allowed",
            "edge cut",
        ],
        [_line(one) for one in result["growth"]],
    )


def _line(one: Result) -> list[str]:
    told, seconds = one["of_ranks"][0], max(of_ranks(one, "wall"))
    if one["policy"] == "METIS":
        name, shares = f"METIS, {one['ranks']} parts, one process", ["-", "-"]
    else:
        part = of_ranks(one, "share")
        name, shares = f"{one['ranks']}, {one['policy']}", [f"{mean(part) / MIB:,.0f}"]
        shares.append(f"{(2 * min(part) + SLACK) / MIB:,.0f}")
    return [
        f"{one['nodes']:,}",
        f"{told['edges']:,}",
        name,
        f"{seconds:.1f}",
        f"{told['edges'] / seconds / 1e6:.1f}",
        shares[0],
        f"{max(of_ranks(one, 'peak')) / MIB:,.0f}",
        shares[1],
        f"{100 * told['edge_cut']:.1f} %",
    ]
