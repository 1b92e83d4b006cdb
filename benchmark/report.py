"""Renders the result files as the tables of README.md. Figures are never typed: run this after a measurement.

README.md holds pairs of comments, ``<!-- results:NAME -->`` and ``<!-- end -->``; what stands between them
is replaced by the tables of every ``results/NAME-*.json`` (or ``results/NAME.json``), graph after graph.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from cli import RESULTS
from harness import HERE

LOADS_PER_EDGE = (
    2.2  # random reads of the graph that an edge costs: its source, and its share of the list's bounds
)
OURS = "ours"
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
    header = ["", "M edges/s", "M edges a CPU second", "edges a minibatch", "ours", "of the gather limit"]
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
        for side, figures in found["ours_against"].items():
            rows.append(
                [
                    dataset,
                    str(found["seeds"]),
                    side,
                    f"{found['mean']['ours']:.2f}",
                    f"{found['mean'][side]:.2f}",
                    f"{figures['mean_difference']:+.2f}",
                    f"{figures['lower_95']:+.2f}",
                    f"-{found['task']['allowed_loss']:.1f}",
                ]
            )
    header = ["", "seeds", "against", "ours %", "theirs %", "mean difference", "lower 95 % bound", "at least"]
    return table(header, rows)


RENDERERS: dict[str, Callable[[Result], str]] = {
    "sampling": sampling,
    "loading": speeds,
    "training": speeds,
    "memory": memory,
    "accuracy": accuracy,
}


def machine(result: Result) -> str:
    """One sentence on where and when the figures were measured."""
    where = result["machine"]
    extensions = ", ".join(where["vector_extensions"])
    sentence = (
        f"{where['cpu']}, {where['cores']} cores, {where['memory_gib']} GiB, {extensions}; "
        f"transparent huge pages: {where['transparent_huge_pages']}; "
        f"Linux {where['kernel']}; {where['compiler']}"
    )
    versions: dict[str, str] = {}
    for series in result.get("series", []):
        for contestant in series["contestants"].values():
            versions.update(contestant["versions"])
    listed = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    return (
        sentence
        + (f"; {listed}" if listed else "")
        + (f"; {result['when']}" if "when" in result else "")
        + "."
    )


def heading(result: Result) -> str:
    """The graph and the workload of a result file."""
    if "graph" not in result:
        return ""
    graph, options = result["graph"], result["options"]
    fanouts = ", ".join(map(str, options["fanouts"]))
    return (
        f"**{graph['name']}**: {graph['nodes']:,} nodes, {graph['edges']:,} edges, "
        f"{graph['features']} features; batch {options['batch_size']:,}, fanout {fanouts}; "
        f"medians of {options['rounds']} rounds of {options['batches']} minibatches.\n\n"
    )


def section(name: str, results: Path, folder: Path) -> str:
    """All tables of one benchmark, or how to get them; pictures are linked as seen from ``folder``."""
    files = sorted([*results.glob(f"{name}-*.json"), *results.glob(f"{name}.json")])
    if not files:
        return f"Not measured yet: `python benchmark/run.py {name}`."
    parts = []
    for file in files:
        result = json.loads(file.read_text())
        picture = file.with_suffix(".png")
        image = f"\n\n![{name}]({os.path.relpath(picture, folder)})" if picture.is_file() else ""
        parts.append(f"{heading(result)}{RENDERERS[name](result)}{image}\n\n{machine(result)}")
    return "\n\n".join(parts)


def render(readme: Path, results: Path) -> str:
    """The text of ``readme`` with everything between result comments replaced."""

    def replaced(match: re.Match[str]) -> str:
        return f"<!-- results:{match[1]} -->\n\n{section(match[1], results, readme.parent)}\n\n<!-- end -->"

    return re.sub(r"<!-- results:(\w+) -->.*?<!-- end -->", replaced, readme.read_text(), flags=re.DOTALL)


def main(arguments: Sequence[str] | None = None) -> None:
    """Rewrite the result sections of a file; plots first where matplotlib is present."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--readme", type=Path, default=HERE / "README.md")
    parsed = parser.parse_args(arguments)
    from plots import plot_all

    plot_all(parsed.results)
    parsed.readme.write_text(render(parsed.readme, parsed.results))
    print(f"wrote {parsed.readme}")


if __name__ == "__main__":
    main()
