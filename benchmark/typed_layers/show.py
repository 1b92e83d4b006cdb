"""The tables of typed steps and link steps."""

from __future__ import annotations

from benchmark.modes.show import graphs
from benchmark.support.tables import OURS, Result, absences, medians, milliseconds, paragraph, setting
from benchmark.support.tables import table as markdown
from benchmark.typed_layers.rows import DGL, LEAST_SHARE, PREFIXES, ROWS, TRIMMED, UNTRIMMED

PEERS = (TRIMMED, UNTRIMMED, PREFIXES, DGL)
SECONDS = "wall_per_minibatch"


def table(result: Result) -> str:
    """Returns the graphs, the times, and what a step needs at least."""
    head = ["ms per step", "ours", "of what it needs", "page faults"]
    head += [cell for peer in PEERS for cell in (peer, "ours is faster by (aim)")]
    parts = [graphs(result), markdown(head, [line(one, result) for one in result["series"]])]
    if result["limits"]:
        parts.append(needed(result))
    note = f"At least {100 * LEAST_SHARE:.0f} % of what a step takes is to be what it needs."
    return "\n\n".join([*parts, paragraph(note)]) + absences(result["series"])


def line(series: Result, result: Result) -> list[str]:
    """Returns the cells of a row in one setting."""
    row, figures = ROWS[series["row"]], medians(series)
    name, ours = f"{row.name}, {setting(series)}", figures.get(OURS)
    if ours is None:
        return [name, *["-"] * (3 + 2 * len(PEERS))]
    cells = [name, milliseconds(ours, SECONDS), share(series, ours, result)]
    cells.append(f"{ours['faults_per_minibatch']:,.0f}")
    for peer in PEERS:
        theirs = figures.get(peer)
        if peer not in row.aims:
            cells += ["", ""]
        elif theirs is None:
            cells += ["-", f"- ({row.aims[peer]:g}x)"]
        else:
            times = theirs[SECONDS] / ours[SECONDS]
            cells += [milliseconds(theirs, SECONDS), f"{times:.1f}x ({row.aims[peer]:g}x)"]
    return cells


def share(series: Result, ours: dict[str, float], result: Result) -> str:
    """Returns the time that gathers and products need, in per cent of the time taken."""
    limit = result["limits"].get(str(series["threads"]), {}).get(series["row"])
    if limit is None:
        return "-"
    return f"{100 * sum(limit['seconds']['float32'].values()) / ours[SECONDS]:.0f} %"


def needed(result: Result) -> str:
    """Returns what a step needs, and the time that it takes at the measured rates."""
    parts = ("sampling", "gathers", "products")
    lines = []
    for threads, rows in sorted(result["limits"].items()):
        for name, limit in rows.items():
            seconds = limit["seconds"]["float32"]
            cells = [f"{name}, {threads} thread{'s' if threads != '1' else ''}"]
            cells.append(f"{limit['operations'] / 1e9:.1f}")
            cells.append(f"{limit['gathered_bytes']['float32'] / 1e6:,.0f}")
            cells += [f"{1e3 * seconds[part]:,.0f}" for part in parts]
            lines.append([*cells, f"{1e3 * sum(seconds.values()):,.0f}"])
    head = ["a step needs", "GFLOP", "MB gathered", *(f"{part} ms" for part in parts), "together ms"]
    return markdown(head, lines)
