"""The tables of the partitioning benchmark, in Markdown, and their picture."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt

from benchmark.ranks.show import SLACK
from benchmark.support.tables import MIB, Result, by, of_ranks, paragraph
from benchmark.support.tables import table as markdown

#: A figure of a side, or None where there is none.
Figure = Callable[[Result], float | None]
_LOADS = ("nodes", "edges", "train")
#: The nodes of the graphs for which the limits hold, and the ratio to METIS that they allow.
_LARGE, _FAR = 100_000, 1.2


def table(result: Result) -> str:
    """Returns one line per graph, number of parts, constraints and side."""
    lines = []
    for sides in _cases(result):
        lines += [_line(one, sides) for one in sides]
    header = ["graph", "parts", "balanced", "policy, ranks", "edge cut", "over METIS"]
    header += [*(f"{load}, max / mean" for load in _LOADS), "seconds", "over METIS", "CPU seconds"]
    header += ["peak, MiB", "allowed, MiB"]
    said = [paragraph(_summary(result, large)) for large in (True, False)]
    said.append(_seconds_by_graph(result))
    return "\n\n".join([markdown(header, lines), *filter(None, said)])


def plot(result: Result) -> Any:
    """Draws the cut over that of METIS, one point per graph, number of parts and constraints."""
    figure, axes = plt.subplots(figsize=(9, 3.6))
    cases = _cases(result)
    for name in _sides(cases):
        points = [(at, ratio) for at, sides in enumerate(cases) if (ratio := _ratio(sides, name, _cut))]
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
    cases = [sides for sides in _cases(result) if _is_large(sides) == large]
    said, far = [], []
    for name in _sides(cases):
        found = [ratio for sides in cases if (ratio := _ratio(sides, name, _cut))]
        said.append(f"{name}: {_geometric_mean(found):.3f}, at most {max(found):.3f}")
        if name.startswith("multilevel"):
            far += [
                f"{name} on {_graph(sides[0])}, {sides[0]['parts']} parts, {sides[0]['constraints']} "
                f"({ratio:.3f})"
                for sides in cases
                if (ratio := _ratio(sides, name, _cut) or 0.0) > _FAR
            ]
    if not said:
        return ""
    sizes = f"at least {_LARGE:,}" if large else f"fewer than {_LARGE:,}"
    above = f" Above {_FAR}: {'; '.join(far)}." if far else f" multilevel is nowhere above {_FAR}."
    return (
        f"Graphs of {sizes} nodes: edge cut over that of METIS, geometric mean over graphs, parts and "
        f"constraints. {'; '.join(said)}.{above}"
    )


def _seconds_by_graph(result: Result) -> str:
    """Returns a table of the seconds of each side over those of METIS, one line per graph."""
    cases = _cases(result)
    names, lines = _sides(cases), []
    for graph in dict.fromkeys(_graph(sides[0]) for sides in cases):
        of_graph = [sides for sides in cases if _graph(sides[0]) == graph]
        lines.append([graph, *(_mean_and_most(of_graph, name) for name in names)])
    text = "Seconds over those of METIS, geometric mean over parts and constraints, and at most:"
    return f"{text}\n\n{markdown(['graph', *names], lines)}"


def _mean_and_most(cases: list[list[Result]], name: str) -> str:
    found = [ratio for sides in cases if (ratio := _ratio(sides, name, _seconds))]
    return f"{_geometric_mean(found):.2f}, {max(found):.2f}" if found else "-"


def _is_large(sides: list[Result]) -> bool:
    nodes: int = sides[0]["of_ranks"][0]["nodes"]
    return nodes >= _LARGE


def _geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def _sides(cases: list[list[Result]]) -> list[str]:
    """Returns the names of the sides that are compared with METIS."""
    names = dict.fromkeys(_name(one) for sides in cases for one in sides)
    return [
        name
        for name in names
        if not name.startswith("METIS") and any(_ratio(sides, name, _cut) for sides in cases)
    ]


def _ratio(sides: list[Result], name: str, figure: Figure) -> float | None:
    """Returns a figure of a side over that of METIS, if both have it."""
    metis = next((figure(one) for one in sides if one["side"] == "METIS"), None)
    own = next((figure(one) for one in sides if _name(one) == name), None)
    return own / metis if own is not None and metis else None


def _cut(one: Result) -> float | None:
    cut: float = one["of_ranks"][0]["edge_cut"]
    return cut


def _seconds(one: Result) -> float | None:
    """Returns the seconds of the slowest rank, unless the machine did other work."""
    return None if one["busy"] else max(of_ranks(one, "wall"))


def _name(one: Result) -> str:
    return f"{one['side']}, {one['ranks']}"


def _graph(one: Result) -> str:
    graph = str(one["graph"])
    return f"{int(graph):,}" if graph.isdigit() else graph


def _line(one: Result, sides: list[Result]) -> list[str]:
    told = one["of_ranks"][0]
    peak, balance, seconds = max(of_ranks(one, "peak")), told["balance"], _seconds(one)
    over_cut, over_seconds = (_ratio(sides, _name(one), figure) for figure in (_cut, _seconds))
    return [
        _graph(one),
        str(one["parts"]),
        one["constraints"],
        _name(one),
        f"{100 * told['edge_cut']:.2f} %",
        f"{over_cut:.3f}" if over_cut else "-",
        *(f"{balance[load]:.3f}" if load in balance else "-" for load in _LOADS),
        f"{seconds:.1f}" if seconds else "-",
        f"{over_seconds:.2f}" if over_seconds else "-",
        f"{sum(of_ranks(one, 'cpu')):.1f}" if seconds else "-",
        f"{peak / MIB:,.0f}" if peak else "-",
        f"{(2 * max(of_ranks(one, 'share')) + SLACK) / MIB:,.0f}" if "share" in told else "-",
    ]
