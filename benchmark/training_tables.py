"""The tables of the training benchmark, in Markdown, from the content of its collected result file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from networks.recipe import MODELS
from tables import OURS, Result, absences, medians, setting, table

BFLOAT16 = "ours, bfloat16"
OWN_LOADER = "ours, PyG's layers"
OTHERS = ("PyG trim_to_layer", "PyG hand-written slices", "DGL")
TITLES = {"sage": "SAGE", "gcn": "GCN", "gin": "GIN", "gat": "GAT"}
SECONDS = "wall_per_minibatch"


@dataclass
class Row:
    """One network and setting, over all tables that it was measured at.

    Attributes:
        name: network, threads and allocator.
        seconds: a step of each contestant, at the quietest of its tables.
        times: how many times as fast as each contestant ours was, at the same table (the last of those).
    """

    model: str
    threads: int
    name: str
    seconds: dict[str, float] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)


def rows(result: Result) -> Iterator[Row]:
    """Networks in their order, each with its settings."""
    found: dict[tuple[str, int, str], Row] = {}
    for series in result["series"]:
        key = (series["model"], series["threads"], series["malloc"])
        row = found.setdefault(key, Row(key[0], key[1], f"{TITLES[key[0]]}, {setting(series)}"))
        figures = {name: one[SECONDS] for name, one in medians(series).items()}
        for name, seconds in figures.items():
            row.seconds[name] = min(seconds, row.seconds.get(name, seconds))
        if OURS in figures:
            row.times.update({name: seconds / figures[OURS] for name, seconds in figures.items()})
    order = sorted(found, key=lambda key: (MODELS.index(key[0]), key[2], key[1]))
    return (found[key] for key in order)


def milliseconds(row: Row, name: str) -> str:
    """One cell of the first table."""
    return f"{1e3 * row.seconds[name]:,.0f}" if name in row.seconds else "-"


def times(row: Row, name: str) -> str:
    """One cell of the second table."""
    return f"{row.times[name]:.1f}x" if name in row.times else "-"


def share(row: Row, limits: Result, name: str, dtype: str) -> str:
    """The time that gathers and products need, in per cent of the time taken."""
    limit = limits.get(str(row.threads), {}).get(row.model)
    if limit is None or name not in row.seconds:
        return "-"
    return f"{100 * sum(limit['seconds'][dtype].values()) / row.seconds[name]:.0f} %"


def bfloat16_gain(row: Row) -> str:
    """How many times as fast bfloat16 is, against our own float32."""
    return f"{1 / row.times[BFLOAT16]:.2f}x" if BFLOAT16 in row.times else "-"


def needed(result: Result) -> str:
    """What a step needs, and the time that it takes at the rates measured."""
    lines = []
    for threads, models in sorted(result["limits"].items()):
        for model, limit in models.items():
            for dtype, seconds in limit["seconds"].items():
                lines.append(
                    [
                        f"{TITLES[model]}, {threads} thread{'s' if threads != '1' else ''}, {dtype}",
                        f"{limit['operations'] / 1e9:.1f}",
                        f"{limit['gathered_bytes'][dtype] / 1e6:,.0f}",
                        *(f"{1e3 * seconds[part]:,.0f}" for part in ("sampling", "gathers", "products")),
                        f"{1e3 * sum(seconds.values()):,.0f}",
                    ]
                )
    header = [
        "a step needs",
        "GFLOP",
        "MB gathered",
        "sampling ms",
        "gathers ms",
        "products ms",
        "together ms",
    ]
    return table(header, lines)


def still_absent(result: Result, found: list[Row]) -> list[dict[str, dict[str, str]]]:
    """What no table of a row could measure: a contestant may have fitted into a smaller one."""
    measured = {row.name: set(row.seconds) for row in found}
    return [
        {
            "absent": {
                name: why
                for name, why in series["absent"].items()
                if name not in measured[f"{TITLES[series['model']]}, {setting(series)}"]
            }
        }
        for series in result["series"]
    ]


def training(result: Result) -> str:
    """Milliseconds a step, then how many times as fast ours is, then what a step needs at least."""
    found = list(rows(result))
    names = [OURS, BFLOAT16, OWN_LOADER, *OTHERS]
    taken = table(
        ["ms a step", *names], [[row.name, *(milliseconds(row, name) for name in names)] for row in found]
    )
    limits = result["limits"]
    ratios = table(
        [
            "ours is faster than",
            *OTHERS,
            OWN_LOADER,
            "bfloat16 against float32",
            "of what it needs",
            "bfloat16",
        ],
        [
            [
                row.name,
                *(times(row, name) for name in (*OTHERS, OWN_LOADER)),
                bfloat16_gain(row),
                share(row, limits, OURS, "float32"),
                share(row, limits, BFLOAT16, "bfloat16"),
            ]
            for row in found
        ],
    )
    parts = [taken, ratios, *([needed(result)] if limits else [])]
    return "\n\n".join(parts) + absences(still_absent(result, found))


def footprint(result: Result) -> str:
    """Memory of a step, and what it asks of the system once it is warm."""
    lines = []
    for series in result["series"]:
        for name, one in series["contestants"].items():
            figures, ready = one["median"], one["ready"]
            lines.append(
                [
                    f"{TITLES[series['model']]}, {setting(series)}: {name}",
                    f"{figures['peak'] / 2**20:,.0f}",
                    f"{ready / 2**20:,.0f}",
                    f"{(figures['peak'] - ready) / 2**20:,.0f}",
                    f"{figures['faults_per_minibatch']:,.0f}",
                    f"{figures['large_allocation_calls_per_minibatch']:,.1f}",
                    f"{figures['large_allocation_bytes_per_minibatch'] / 2**20:,.1f}",
                ]
            )
    header = ["", "peak MiB", "before the first step", "more for steps"]
    header += ["page faults a step", "allocations of a page or more", "their MiB"]
    return table(header, lines) + absences(result["series"])


def layers(result: Result) -> str:
    """Rates of kernels: bytes of rows gathered, or operations."""
    lines = []
    for threads, cases in result["cases"].items():
        for case in cases:
            unit = "GFLOP/s" if case["name"].startswith("linear") else "GB/s"
            lines.append(
                [
                    f"{threads} thread{'s' if threads != '1' else ''}, {case['dtype']}: {case['name']}",
                    case["by"],
                    f"{1e3 * case['seconds']:,.1f}",
                    f"{case['rate'] / 1e9:,.1f} {unit}",
                ]
            )
    return table(["", "whose", "ms", "rate"], lines)
