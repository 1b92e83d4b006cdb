"""The tables of typed steps and link steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmark.modes.show import graphs
from benchmark.support.tables import OURS, Result, absences, figures_of, milliseconds, paragraph, setting
from benchmark.support.tables import table as markdown
from benchmark.typed_layers.rows import LEAST_SHARE, PEERS, ROWS, Row

SECONDS = "wall_per_minibatch"


@dataclass
class Line:
    """A row in one setting, over the tables that it was measured at.

    Attributes:
        row: what is trained.
        threads: the number of threads.
        name: row, threads and allocator.
        ours: the figures of ours at the quietest of its tables.
        theirs: seconds per step by peer.
        times: by peer, how many times as fast ours was at the same table.
    """

    row: Row
    threads: int
    name: str
    ours: dict[str, float] | None = None
    theirs: dict[str, float] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)

    def add(self, figures: dict[str, dict[str, float]]) -> None:
        """Takes the figures of a table."""
        ours = figures.get(OURS)
        for peer in PEERS:
            if peer in figures:
                self.theirs[peer] = figures[peer][SECONDS]
                if ours is not None:
                    self.times[peer] = figures[peer][SECONDS] / ours[SECONDS]
        if ours is not None and (self.ours is None or ours[SECONDS] < self.ours[SECONDS]):
            self.ours = ours

    def cells(self, limits: Result) -> list[str]:
        """Returns the cells of the line."""
        found = [self.name, milliseconds(self.ours, SECONDS), self.share(limits)]
        found.append("-" if self.ours is None else f"{self.ours['faults_per_minibatch']:,.0f}")
        for peer in PEERS:
            if peer not in self.row.aims:
                found += ["", ""]
                continue
            times = f"{self.times[peer]:.1f}x" if peer in self.times else "-"
            found.append(f"{1e3 * self.theirs[peer]:,.1f}" if peer in self.theirs else "-")
            found.append(f"{times} ({self.row.aims[peer]:g}x)")
        return found

    def share(self, limits: Result) -> str:
        """Returns the time that gathers and products need, in per cent of the time taken."""
        limit = limits.get(str(self.threads), {}).get(self.row.name)
        if limit is None or self.ours is None:
            return "-"
        return f"{100 * sum(limit['seconds']['float32'].values()) / self.ours[SECONDS]:.0f} %"


def table(result: Result) -> str:
    """Returns the graphs, the times, and what a step needs at least."""
    head = ["ms per step", "ours", "of what it needs", "page faults"]
    head += [cell for peer in PEERS for cell in (peer, "ours is faster by (aim)")]
    lines = [line.cells(result["limits"]) for line in merged(result)]
    parts = [graphs(result), markdown(head, lines)]
    if result["limits"]:
        parts.append(needed(result))
    note = f"At least {100 * LEAST_SHARE:.0f} % of what a step takes is to be what it needs."
    return "\n\n".join([*parts, paragraph(note)]) + absences(result["series"])


def merged(result: Result) -> list[Line]:
    """Returns the lines, each with the figures of all of its tables."""
    found: dict[tuple[str, str], Line] = {}
    for series in result["series"]:
        row, where = ROWS[series["row"]], setting(series)
        name = f"{row.name}, {where}"
        line = found.setdefault((row.name, where), Line(row, series["threads"], name))
        line.add(figures_of(series))
    return list(found.values())


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
