"""The rows of the table: what is done, who does it, and what is aimed at."""

from __future__ import annotations

from dataclasses import dataclass, field

#: The contestants by name: side and job.
OURS, CSC, PYG, DGL = "ours", "ours, CSC only", "PyG", "DGL"
SIDES = {
    OURS: ("modes_ours", "work"),
    CSC: ("modes_ours", "csc"),
    PYG: ("modes_pyg", "work"),
    DGL: ("modes_dgl", "work"),
}
#: The peers' environments on the command line.
ENVIRONMENTS = {OURS: "ours", CSC: "ours", PYG: "pyg", DGL: "dgl"}


@dataclass(frozen=True)
class Row:
    """One kind of work.

    Attributes:
        work: its name, which contestants know.
        fanouts: neighbours per hop, from the seeds.
        contestants: the names of those that can do it.
        typed: True if it is on the typed graph.
        rate: True if peers are compared by edges per second: they return different edges.
        aims: by peer, how many times as fast ours is to be, on one thread and on two.
        quoted: by peer, milliseconds of CPU time per minibatch on one thread, measured in November
            2026 on the graphs of full size on a machine of the same type (EPYC, family 26); for
            work that is compared by rate, million edges per second.
    """

    work: str
    fanouts: tuple[int, ...]
    contestants: tuple[str, ...] = (OURS, PYG)
    typed: bool = False
    rate: bool = False
    aims: dict[str, tuple[float, float]] = field(default_factory=dict)
    quoted: dict[str, float] = field(default_factory=dict)


ROWS = {
    row.work: row
    for row in (
        Row(
            "typed sampling",
            (15, 10),
            (OURS, CSC, PYG, DGL),
            typed=True,
            rate=True,
            aims={PYG: (5, 9), DGL: (3, 3)},
            quoted={PYG: 8.5, DGL: 11.6},
        ),
        Row("typed loading", (15, 10), typed=True, aims={PYG: (4, 4)}, quoted={PYG: 83}),
        Row("disjoint", (10, 10), aims={PYG: (6, 6)}, quoted={PYG: 41}),
        Row("temporal, uniform", (10, 10), aims={PYG: (6, 6)}, quoted={PYG: 72}),
        Row("temporal, last", (10, 10), aims={PYG: (5, 5)}, quoted={PYG: 49}),
        Row(
            "weighted",
            (15, 10, 5),
            (OURS, PYG, DGL),
            aims={PYG: (15, 15), DGL: (5, 5)},
            quoted={PYG: 1230, DGL: 466},
        ),
        Row("links", (15, 10), aims={PYG: (6, 6)}, quoted={PYG: 229}),
    )
}
#: The row that `benchmark.modes.relations` measures.
RELATIONS = "relations"
