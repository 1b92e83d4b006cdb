"""The tables of sampling and loading by types, times, weights and links."""

from __future__ import annotations

from typing import Any

from benchmark.modes.rows import CSC, DGL, OURS, PYG, ROWS, Row
from benchmark.support.rounds import in_words
from benchmark.support.tables import LOADS_PER_EDGE, Result, absences, figures_of, milliseconds, paragraph
from benchmark.support.tables import table as markdown

#: The page faults that a minibatch may take when the loader has warmed up.
MOST_FAULTS = 5
#: The microseconds that a relation may take which a minibatch does not reach.
MOST_MICROSECONDS = 1.0
SECONDS, RATE = "wall_per_minibatch", "edges_per_second"
CPU_SECONDS, CPU_RATE = "cpu_per_minibatch", "edges_per_cpu_second"


def table(result: Result) -> str:
    """Returns both tables: one row per work and number of threads, and relations not reached."""
    parts = [text for text in (graphs(result), speeds(result), relations(result)) if text]
    return "\n\n".join(parts) + absences(result["series"])


def graphs(result: Result) -> str:
    """Returns the graphs and the workload."""
    sizes = [
        f"{one['name']}: {one['nodes']:,} nodes, {one['edges']:,} edges, {one['features']} features"
        for one in result["graphs"]
    ]
    options = result["options"]
    rounds = f"{in_words(options['rounds'])} of {options['batches']} minibatches"
    work = f"batch {options['batch_size']:,}; {rounds}"
    return paragraph("; ".join([*sizes, work]) + ".")


def speeds(result: Result) -> str:
    """Returns the table of all works."""
    if not result["series"]:
        return ""
    lines = [line(one, result) for one in result["series"]]
    header = [
        *("", "ours ms", "M edges/s", "edges", "of the limit", "page faults"),
        *("PyG ms", "edges", "ours is faster by (aim)", "DGL ms", "edges", "ours is faster by (aim)"),
    ]
    rates = ", ".join(
        f"{one['loads_per_second'] / 1e6:.0f} M on {one['threads']}" for one in result["limits"]
    )
    note = (
        f"All figures are per minibatch. Sampling is compared by edges per second, all else by time. The "
        f"limit: {LOADS_PER_EDGE} random 8-byte loads per edge ({rates} thread(s)) and the features at the "
        f"rate of random rows. Figures in quotes were measured on another machine of the same type (EPYC, "
        f"family 26) on graphs of full size, CPU time of one thread. At most {MOST_FAULTS} page faults are "
        f"aimed at."
    )
    return f"{markdown(header, lines)}\n\n{paragraph(note)}"


def line(series: Result, result: Result) -> list[str]:
    """Returns the cells of a work and a number of threads."""
    row, figures = ROWS[series["work"]], figures_of(series)
    ours, threads = figures.get(OURS), series["threads"]
    name = f"{row.work}, {', '.join(map(str, row.fanouts))}; {threads} thread{'s' if threads > 1 else ''}"
    if ours is None:
        return [name, *["-"] * 11]
    csc = figures.get(CSC)
    rate = f"{ours[RATE] / 1e6:.1f}" + ("" if csc is None else f" (CSC only {csc[RATE] / 1e6:.1f})")
    own = [milliseconds(ours, SECONDS), rate, f"{ours['edges_per_minibatch']:,.0f}"]
    own += [share(row, ours, threads, result), f"{ours['faults_per_minibatch']:,.1f}"]
    return [name, *own, *peer(row, PYG, figures, threads), *peer(row, DGL, figures, threads)]


def peer(row: Row, name: str, figures: dict[str, dict[str, float]], threads: int) -> list[str]:
    """Returns the cells of a peer: its time, its edges, and how many times as fast ours is."""
    if name not in row.contestants:
        return ["", "", ""]
    ours, theirs = figures[OURS], figures.get(name)
    low, high = row.aims[name]
    aim = f"({low if threads == 1 else high:g})"
    if theirs is not None:
        times = ours[RATE] / theirs[RATE] if row.rate else theirs[SECONDS] / ours[SECONDS]
        return [milliseconds(theirs, SECONDS), f"{theirs['edges_per_minibatch']:,.0f}", f"{times:.1f}x {aim}"]
    quoted = row.quoted[name]
    if threads != 1:
        return ["-", "-", f"- {aim}"]
    # Quoted figures are CPU times.
    times = ours[CPU_RATE] / quoted / 1e6 if row.rate else quoted / 1e3 / ours[CPU_SECONDS]
    return [f'"{quoted:g} M edges/s"' if row.rate else f'"{quoted:,.0f}"', "-", f'"{times:.1f}x" {aim}']


def share(row: Row, ours: dict[str, float], threads: int, result: Result) -> str:
    """Returns what the limits of memory would take, in percent of what ours takes."""
    limit = next(one for one in result["limits"] if one["threads"] == threads)
    seconds = LOADS_PER_EDGE * ours["edges_per_minibatch"] / limit["loads_per_second"]
    size = ours["feature_bytes_per_minibatch"]
    if size:
        rows: list[dict[str, Any]] = limit["rows"]
        table_of = rows[-1] if row.typed else rows[0]
        seconds += size / table_of["bytes_per_second"]
    return f"{100 * seconds / ours[SECONDS]:.0f} %"


def relations(result: Result) -> str:
    """Returns the table of relations that minibatches do not reach."""
    if "relations" not in result:
        return ""
    added, ways = result["relations"]["added"], result["relations"]["ways"]
    rows = [
        [name, *(f"{1e6 * figures[key]:,.0f}" for key in ("few", "many")), f"{1e6 * figures['each']:.2f}"]
        for name, figures in ways.items()
    ]
    header = ["CPU us per minibatch", "2 relations", f"and {added} that it does not reach", "each of these"]
    note = (
        f"At most {MOST_MICROSECONDS:g} us each is aimed at for sampling and native minibatches, and at "
        f"most what PyG's filter takes for PyG batches."
    )
    return f"{markdown(header, rows)}\n\n{paragraph(note)}"
