"""The tables of the partitioning benchmark, in Markdown, and their picture."""

from __future__ import annotations

import math
from typing import Any

import matplotlib.pyplot as plt

from benchmark.ranks.show import SLACK
from benchmark.support.tables import MIB, Result, by, of_ranks, paragraph
from benchmark.support.tables import table as markdown

_LOADS = ("nodes", "edges", "train")


def table(result: Result) -> str:
    """Returns one line per graph, number of parts, constraints and side."""
    lines = []
    for graph, of_graph in by(result["partitioning"], "graph"):
        for parts, of_parts in by(of_graph, "parts"):
            for constraints, sides in by(of_parts, "constraints"):
                metis = _cut_of(sides, "METIS")
                lines += [_line(graph, parts, constraints, one, metis) for one in sides]
    header = ["graph", "parts", "balanced", "policy, ranks", "edge cut", "over METIS"]
    header += [*(f"{load}, max / mean" for load in _LOADS), "CPU seconds", "peak, MiB"]
    header += ["allowed, MiB"]
    return "\n\n".join([markdown(header, lines), paragraph(_summary(result))])


def plot(result: Result) -> Any:
    """Draws the cut over that of METIS, one point per graph, number of parts and constraints."""
    figure, axes = plt.subplots(figsize=(8, 3.6))
    for name in dict.fromkeys(_name(one) for one in result["partitioning"]):
        points = [ratio for ratio in _ratios(result, name) if ratio is not None]
        if points and not name.startswith("METIS"):
            axes.plot(range(len(points)), points, "o-", label=name)
    axes.axhline(1.0, color="grey", linewidth=1)
    axes.set(xlabel="graph, parts and constraints, in the order of the table", ylabel="edge cut over METIS")
    axes.legend(fontsize=7)
    return figure


def _summary(result: Result) -> str:
    said = []
    for name in dict.fromkeys(_name(one) for one in result["partitioning"]):
        found = [ratio for ratio in _ratios(result, name) if ratio]
        if found and not name.startswith("METIS"):
            mean = math.exp(sum(map(math.log, found)) / len(found))
            said.append(f"{name}: {mean:.3f}, at most {max(found):.3f}")
    return f"Edge cut over that of METIS, geometric mean over graphs and parts. {'; '.join(said)}."


def _ratios(result: Result, name: str) -> list[float | None]:
    """Returns the cut of a side over that of METIS, in the order of the table."""
    found = []
    for _, of_graph in by(result["partitioning"], "graph"):
        for _, of_parts in by(of_graph, "parts"):
            for _, sides in by(of_parts, "constraints"):
                metis = _cut_of(sides, "METIS")
                own = next((one["of_ranks"][0]["edge_cut"] for one in sides if _name(one) == name), None)
                found.append(own / metis if own is not None and metis else None)
    return found


def _cut_of(sides: list[Result], side: str) -> float | None:
    return next((one["of_ranks"][0]["edge_cut"] for one in sides if one["side"] == side), None)


def _name(one: Result) -> str:
    return f"{one['side']}, {one['ranks']}"


def _line(graph: str, parts: int, constraints: str, one: Result, metis: float | None) -> list[str]:
    told = one["of_ranks"][0]
    peak = max(of_ranks(one, "peak"))
    return [
        f"{int(graph):,}" if graph.isdigit() else graph,
        str(parts),
        constraints,
        _name(one),
        f"{100 * told['edge_cut']:.2f} %",
        f"{told['edge_cut'] / metis:.3f}" if metis else "-",
        *(f"{told['balance'][load]:.3f}" for load in _LOADS),
        f"{sum(of_ranks(one, 'cpu')):.1f}",
        f"{peak / MIB:,.0f}" if peak else "-",
        f"{(2 * max(of_ranks(one, 'share')) + SLACK) / MIB:,.0f}" if "share" in told else "-",
    ]
