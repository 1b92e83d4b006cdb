"""The tables of the benchmarks, in Markdown, from the content of their result files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

LOADS_PER_EDGE = (
    2.2  # random reads of the graph that an edge costs: its source, and its share of the list's bounds
)
OURS = "ours"
SIDE_NAMES = {
    "ours": "PyG's layers, our minibatches",
    "reference": "reference sampler",
    "pyg": "PyG's sampler",
    "native": "native layers",
    "native-bfloat16": "native layers, bfloat16",
}
Result = dict[str, Any]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, the others are numbers."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def medians(series: Result) -> dict[str, dict[str, float]]:
    """Median figures of each contestant of a series."""
    return {name: contestant["median"] for name, contestant in series["contestants"].items()}


def times(ours: dict[str, float] | None, other: dict[str, float], seconds: str) -> str:
    """How many times as fast ours is, by the figure named ``seconds``."""
    return "-" if ours is None else f"{other[seconds] / ours[seconds]:.1f}x"


def milliseconds(figures: dict[str, float] | None, seconds: str) -> str:
    """One figure in milliseconds, or a dash where the side is absent."""
    return "-" if figures is None else f"{1e3 * figures[seconds]:,.1f}"


def setting(series: Result) -> str:
    """Threads and allocator of a series, in words."""
    threads = series["threads"]
    return f"{threads} thread{'s' if threads > 1 else ''}, malloc {series['malloc']}"


def absences(series: Iterable[Result]) -> str:
    """One sentence for every contestant that could not take part."""
    reasons = {name: why for one in series for name, why in one["absent"].items()}
    return "".join(f"\n\nNot measured: {why}." for why in reasons.values())


def own_figures(ours: dict[str, float]) -> list[str]:
    """The cells of a row of :func:`speeds` that has no peer."""
    wall, cpu = milliseconds(ours, "wall_per_minibatch"), milliseconds(ours, "cpu_per_minibatch")
    return ["-", wall, "-", cpu, "-", f"{ours['edges_per_minibatch']:,.0f}", "-", "-"]


def speeds(result: Result) -> str:
    """A row for every setting and peer, beside our own figures of the same rounds."""
    rows = []
    for series in result["series"]:
        found = medians(series)
        ours = found.pop(OURS, None)
        if ours and not found:  # no peer is installed: our own figures still stand
            rows.append([f"{setting(series)}: no peer", *own_figures(ours)])
        for name, figures in found.items():
            rows.append(
                [
                    f"{setting(series)}: {name}",
                    *(milliseconds(one, "wall_per_minibatch") for one in (figures, ours)),
                    *(milliseconds(one, "cpu_per_minibatch") for one in (figures, ours)),
                    *(f"{one['edges_per_minibatch']:,.0f}" if one else "-" for one in (figures, ours)),
                    times(ours, figures, "wall_per_minibatch"),
                    times(ours, figures, "cpu_per_minibatch"),
                ]
            )
    header = ["", "wall ms", "ours", "CPU ms", "ours", "edges", "ours", "times as fast, wall", "CPU"]
    return table(header, rows) + "\n\nAll a minibatch." + absences(result["series"])


def sampling(result: Result) -> str:
    """Rates of edges, with the share of the gather limit measured in the same run."""
    rows = []
    limits = {limit["threads"]: limit["loads_per_second"] for limit in result["gather_limit"]}
    for series in result["series"]:
        found, limit = medians(series), limits[series["threads"]]
        ours = found.get(OURS)
        for name, figures in found.items():
            rate = figures["edges_per_second"]
            rows.append(
                [
                    f"{series['threads']} thread{'s' if series['threads'] > 1 else ''}: {name}",
                    f"{rate / 1e6:.2f}",
                    f"{figures['edges_per_cpu_second'] / 1e6:.2f}",
                    f"{figures['edges_per_minibatch']:,.0f}",
                    f"{ours['edges_per_second'] / rate:.1f}x" if ours else "-",
                    f"{100 * LOADS_PER_EDGE * rate / limit:.0f} %",
                ]
            )
    header = [
        "",
        "M edges/s",
        "M edges a CPU second",
        "edges a minibatch",
        "ours is faster by",
        "of the gather limit",
    ]
    limit_text = ", ".join(f"{rate / 1e6:.0f} M on {count} thread(s)" for count, rate in limits.items())
    note = f"\n\nGather limit, random 8-byte loads a second: {limit_text}; {LOADS_PER_EDGE} loads an edge."
    return table(header, rows) + note + absences(result["series"])


def memory(result: Result) -> str:
    """Faults and allocations a minibatch, then the growth of resident memory."""
    rows = []
    for series in result["series"]:
        for name, figures in medians(series).items():
            rows.append(
                [
                    f"{setting(series)}: {name}",
                    f"{figures['faults_per_minibatch']:,.1f}",
                    f"{figures['large_allocation_calls_per_minibatch']:,.2f}",
                    f"{figures['large_allocation_bytes_per_minibatch'] / 2**10:,.0f}",
                    f"{figures['allocation_calls_per_minibatch']:,.0f}",
                ]
            )
    header = [
        "a minibatch",
        "page faults",
        "allocations of a page or more",
        "their KiB",
        "all calls of the allocator",
    ]
    growth = result["long"]["growth"]
    note = (
        f"\n\nResident memory over {growth['minibatches']:,} minibatches after the first 500: slope "
        f"{growth['slope_mib_per_1000']:+.2f} MiB per 1,000 minibatches, end minus beginning "
        f"{growth['end_minus_beginning_mib']:+.2f} MiB."
    )
    return table(header, rows) + note + absences(result["series"])


def accuracy(result: Result) -> str:
    """Mean test accuracies and the paired differences with their lower bounds."""
    rows = []
    for dataset, found in result["datasets"].items():
        for figures in found["pairs"]:
            side, other = figures["side"], figures["against"]
            rows.append(
                [
                    dataset,
                    str(found["seeds"]),
                    SIDE_NAMES[side],
                    SIDE_NAMES[other],
                    f"{found['mean'][side]:.2f}",
                    f"{found['mean'][other]:.2f}",
                    f"{figures['mean_difference']:+.2f}",
                    f"{figures['lower_95']:+.2f}",
                    f"-{found['task']['allowed_loss']:.1f}",
                ]
            )
    header = ["", "seeds", "", "against", "%", "against %", "mean difference", "lower 95 % bound", "at least"]
    return table(header, rows)


def convergence(result: Result) -> str:
    """When each side's validation accuracy came within half a point of the best that both reach."""
    rows = []
    for dataset, found in result["datasets"].items():
        native, pyg = (found["sides"][side] for side in ("native", "pyg"))
        both = native["seconds"] and pyg["seconds"]
        rows.append(
            [
                dataset,
                str(found["seeds"]),
                f"{found['target']:.2f}",
                *(f"{side['seconds']:.2f}" if side["seconds"] else "-" for side in (native, pyg)),
                f"{pyg['seconds'] / native['seconds']:.1f}x" if both else "-",
                *(f"{side['reached']}" for side in (native, pyg)),
                *(f"{side['test']:.2f}" for side in (native, pyg)),
            ]
        )
    header = ["", "seeds", "validation %", "native, s", "PyG's layers, s", "times as fast"]
    header += ["runs that got there", "PyG's", "test %, native", "PyG's"]
    return table(header, rows)
