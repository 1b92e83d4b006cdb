"""The tables of the partitioning benchmark, in Markdown, and their picture."""

from __future__ import annotations

import math
from typing import Any

import matplotlib.pyplot as plt

from benchmark.ranks.show import SLACK
from benchmark.support.tables import MIB, Result, by, of_ranks, paragraph
from benchmark.support.tables import table as markdown

_LOADS = ("nodes", "edges", "train")
#: The nodes of the graphs for which the limits hold, and the ratio to METIS that they allow.
_LARGE, _FAR = 100_000, 1.2


def table(result: Result) -> str:
    """Returns one line per graph, number of parts, constraints and side."""
    lines = []
    for sides in _cases(result):
        metis = _cut_of(sides, "METIS")
        lines += [_line(one, metis) for one in sides]
    header = ["graph", "parts", "balanced", "policy, ranks", "edge cut", "over METIS"]
    header += [*(f"{load}, max / mean" for load in _LOADS), "CPU seconds", "peak, MiB"]
    header += ["allowed, MiB"]
    said = [paragraph(_summary(result, large)) for large in (True, False)]
    return "\n\n".join([markdown(header, lines), *filter(None, said)])


def plot(result: Result) -> Any:
    """Draws the cut over that of METIS, one point per graph, number of parts and constraints."""
    figure, axes = plt.subplots(figsize=(9, 3.6))
    cases = _cases(result)
    for name in _sides(cases):
        points = [(at, ratio) for at, sides in enumerate(cases) if (ratio := _ratio(sides, name))]
        axes.plot(*zip(*points, strict=True), "o", markersize=4, label=name)
    axes.axhline(1.0, color="grey", linewidth=1)
    axes.set(xlabel="graph, parts and constraints, in the order of the table", ylabel="edge cut over METIS")
    axes.legend(fontsize=7)
    return figure


def _cases(result: Result) -> list[list[Result]]:
    """Returns the sides of each graph, number of parts and constraints, small graphs first."""
    ordered = sorted(result["partitioning"], key=_place)
    return [
        sides
        for _, of_graph in by(ordered, "graph")
        for _, of_parts in by(of_graph, "parts")
        for _, sides in by(of_parts, "constraints")
    ]


def _place(one: Result) -> tuple[int, str, int, str, int, int]:
    sides = ("multilevel", "ldg", "METIS", "KaMinPar")
    case = one["of_ranks"][0]["nodes"], one["graph"], one["parts"], one["constraints"]
    return *case, sides.index(one["side"]), one["ranks"]


def _summary(result: Result, large: bool) -> str:
    """Returns the ratios to METIS of each side, and the cases far above it."""
    cases = [sides for sides in _cases(result) if (sides[0]["of_ranks"][0]["nodes"] >= _LARGE) == large]
    said, far = [], []
    for name in _sides(cases):
        found = [ratio for sides in cases if (ratio := _ratio(sides, name))]
        mean = math.exp(sum(map(math.log, found)) / len(found))
        said.append(f"{name}: {mean:.3f}, at most {max(found):.3f}")
        if name.startswith("multilevel"):
            far += [
                f"{name} on {_graph(sides[0])}, {sides[0]['parts']} parts, {sides[0]['constraints']} "
                f"({ratio:.3f})"
                for sides in cases
                if (ratio := _ratio(sides, name) or 0.0) > _FAR
            ]
    if not said:
        return ""
    sizes = f"at least {_LARGE:,}" if large else f"fewer than {_LARGE:,}"
    above = f" Above {_FAR}: {'; '.join(far)}." if far else f" multilevel is nowhere above {_FAR}."
    return (
        f"Graphs of {sizes} nodes: edge cut over that of METIS, geometric mean over graphs, parts and "
        f"constraints. {'; '.join(said)}.{above}"
    )


def _sides(cases: list[list[Result]]) -> list[str]:
    """Returns the names of the sides that are compared with METIS."""
    names = dict.fromkeys(_name(one) for sides in cases for one in sides)
    return [
        name for name in names if not name.startswith("METIS") and any(_ratio(sides, name) for sides in cases)
    ]


def _ratio(sides: list[Result], name: str) -> float | None:
    """Returns the cut of a side over that of METIS."""
    metis = _cut_of(sides, "METIS")
    own = next((one["of_ranks"][0]["edge_cut"] for one in sides if _name(one) == name), None)
    return own / metis if own is not None and metis else None


def _cut_of(sides: list[Result], side: str) -> float | None:
    return next((one["of_ranks"][0]["edge_cut"] for one in sides if one["side"] == side), None)


def _name(one: Result) -> str:
    return f"{one['side']}, {one['ranks']}"


def _graph(one: Result) -> str:
    graph = str(one["graph"])
    return f"{int(graph):,}" if graph.isdigit() else graph


def _line(one: Result, metis: float | None) -> list[str]:
    told = one["of_ranks"][0]
    peak, balance = max(of_ranks(one, "peak")), told["balance"]
    return [
        _graph(one),
        str(one["parts"]),
        one["constraints"],
        _name(one),
        f"{100 * told['edge_cut']:.2f} %",
        f"{told['edge_cut'] / metis:.3f}" if metis else "-",
        *(f"{balance[load]:.3f}" if load in balance else "-" for load in _LOADS),
        "-" if one["busy"] else f"{sum(of_ranks(one, 'cpu')):.1f}",
        f"{peak / MIB:,.0f}" if peak else "-",
        f"{(2 * max(of_ranks(one, 'share')) + SLACK) / MIB:,.0f}" if "share" in told else "-",
    ]
