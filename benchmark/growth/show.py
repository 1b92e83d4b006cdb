"""The table of the growth benchmark, in Markdown, and its picture."""

from __future__ import annotations

from statistics import mean
from typing import Any

import matplotlib.pyplot as plt

from benchmark.ranks.show import SLACK
from benchmark.support.tables import MIB, Result, of_ranks
from benchmark.support.tables import table as markdown


def table(result: Result) -> str:
    """Returns one line per graph, number of ranks and policy."""
    return markdown(
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


def plot(result: Result) -> Any:
    """Draws seconds and peak memory against edges, one line per policy and number of ranks."""
    figure, (seconds, memory) = plt.subplots(1, 2, figsize=(11, 3.6))
    lines: dict[str, list[tuple[float, float, float]]] = {}
    for one in result["growth"]:
        edges = one["of_ranks"][0]["edges"] / 1e6
        peak = max(of_ranks(one, "peak")) / 2**30
        name = "METIS" if one["policy"] == "METIS" else f"{one['policy']}, {one['ranks']} ranks"
        lines.setdefault(name, []).append((edges, max(of_ranks(one, "wall")), peak))
    for name, points in lines.items():
        sizes, took, peaks = zip(*sorted(points), strict=True)
        style = "-" if name.startswith("random") else "--"
        seconds.plot(sizes, took, style, marker="o", label=name)
        memory.plot(sizes, peaks, style, marker="o", label=name)
    for axes, label in ((seconds, "seconds"), (memory, "peak of a rank, GiB")):
        axes.set(xscale="log", yscale="log", xlabel="million edges", ylabel=label)
        ticks = sorted({one["of_ranks"][0]["edges"] / 1e6 for one in result["growth"]})
        axes.set_xticks(ticks, [f"{tick:.0f}" for tick in ticks])
        low, high = axes.get_ylim()
        powers = [2.0**power for power in range(-6, 12) if low <= 2.0**power <= high]
        axes.set_yticks(powers, [f"{power:g}" for power in powers])
        axes.minorticks_off()
        axes.legend(fontsize=7)
    return figure


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
