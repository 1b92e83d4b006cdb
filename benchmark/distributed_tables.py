"""The tables of the distributed benchmark, in Markdown, from the content of its result file."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean, median
from typing import Any

from tables import Result, table

MIB = 2**20
EPOCHS = 2  # that a training job runs; a loader's statistics are of all of them
SLACK = 256 * MIB  # what a rank may use beside twice its share


def distributed(result: Result) -> str:
    """All parts that were measured, a table each."""
    parts = [WRITERS[name](result["parts"][name]) for name in WRITERS if name in result["parts"]]
    return "\n\n".join(parts)


def size_name(macrobatch: int) -> str:
    """B in words."""
    return str(macrobatch) if macrobatch else "all"


def by(series: list[Result], key: str) -> Iterator[tuple[Any, list[Result]]]:
    """Entries of the same ``key``, in order of first appearance."""
    for value in dict.fromkeys(one[key] for one in series):
        yield value, [one for one in series if one[key] == value]


def of_ranks(entry: Result, *path: str) -> list[float]:
    """One figure of every rank."""
    values = entry["of_ranks"]
    for name in path:
        values = [value[name] for value in values]
    return [float(value) for value in values]


def _rows(part: Result) -> str:
    lines = []
    least = {one["ranks"]: of_ranks(one, "distinct") for one in part["series"] if not one["hybrid"]}
    for one in part["series"]:
        fetched, bound = of_ranks(one, "rows_fetched"), least[one["ranks"]]
        received, sent = of_ranks(one, "features", "bytes"), of_ranks(one, "features", "sent")
        needed = 2 * sum(fetched) * (one["of_ranks"][0]["row_bytes"] + 4)  # rows and their ids, both ends
        topology = ", hybrid" if one["hybrid"] else ""
        lines.append(
            [
                f"{one['ranks']} ranks{topology}, B = {size_name(one['macrobatch'])}",
                f"{one['of_ranks'][0]['minibatches']}",
                f"{mean(fetched):,.0f}",
                f"{mean(bound):,.0f}",
                f"{sum(fetched) / sum(bound):.1f}",
                f"{mean(received) / 1e6:,.0f}",
                f"{100 * (1 - needed / (sum(received) + sum(sent))):.1f} %",
                f"{of_ranks(one, 'topology', 'rounds')[0]:.0f}",
                f"{of_ranks(one, 'features', 'rounds')[0]:.0f}",
                f"{mean(of_ranks(one, 'topology', 'bytes')) / 1e6:,.0f}",
            ]
        )
    header = ["feature rows of an epoch, mean over ranks", "minibatches", "fetched", "the least", "times it"]
    header += ["MB received", "of bytes not rows and ids", "topology rounds", "feature rounds", "topology MB"]
    return table(header, lines)


def _network(part: Result) -> str:
    lines, first = [], None
    for size, entries in by(part["series"], "macrobatch"):
        wall = median(max(of_ranks(one, "wall")) for one in entries)
        cpu = median(sum(of_ranks(one, "cpu")) for one in entries)
        first = first or wall
        received = mean(of_ranks(entries[0], "features", "bytes"))
        lines.append(
            [
                f"B = {size_name(size)}",
                f"{wall:.2f}",
                f"{first / wall:.1f}x",
                f"{cpu:.1f}",
                f"{received / 1e6:,.0f}",
                f"{mean(of_ranks(entries[0], 'topology', 'bytes')) / 1e6:,.1f}",
            ]
        )
    ranks = len(part["series"][0]["of_ranks"])
    header = [f"preparing an epoch, {ranks} hosts, {part['network']} links", "seconds", "times as fast"]
    header += ["CPU s, all ranks", "feature MB a rank", "topology MB a rank"]
    return table(header, lines)


def _training(part: Result) -> str:
    lines = []
    for setting, entries in by(part["series"], "setting"):
        phases = {
            name: median(mean(of_ranks(one, "phases", name)) for one in entries)
            for name in ("prepare", "forward", "backward")
        }
        lines.append(
            [
                f"2 ranks, {setting}",
                f"{median(max(of_ranks(one, 'wall')) for one in entries):.2f}",
                *(f"{seconds:.2f}" for seconds in phases.values()),
                f"{median(sum(of_ranks(one, 'cpu')) for one in entries):.1f}",
                f"{mean(of_ranks(entries[0], 'gradients', 'bytes')) / 1e6:.0f}",
            ]
        )
    header = [
        f"an epoch of SAGE, {part['network']}",
        "seconds",
        "preparing",
        "forward",
        "backward and update",
    ]
    return table([*header, "CPU s, all ranks", "gradient MB a rank"], lines)


def _dist_dgl(part: Result) -> str:
    found = {}
    for setting, entries in by(part["series"], "setting"):
        theirs = "remote_rows" in entries[0]["of_ranks"][0]
        before = ("sample", "features") if theirs else ("prepare",)
        found[setting] = {
            "seconds": median(max(of_ranks(one, "wall")) for one in entries),
            "preparing": median(
                sum(mean(of_ranks(one, "phases", name)) for name in before) for one in entries
            ),
            **{
                name: median(mean(of_ranks(one, "phases", name)) for one in entries)
                for name in ("forward", "backward")
            },
            "rows": mean(of_ranks(entries[0], "remote_rows"))
            if theirs
            else mean(of_ranks(entries[0], "stats", "rows_fetched")) / EPOCHS,
        }
    peer = found["DistDGL"]
    lines = [
        [
            f"{setting}",
            *(f"{one[name]:.2f}" for name in ("seconds", "preparing", "forward", "backward")),
            f"{one['rows']:,.0f}",
            *(f"{peer[name] / one[name]:.1f}x" for name in ("seconds", "preparing", "rows")),
        ]
        for setting, one in found.items()
    ]
    header = ["beside DistDGL, 2 hosts", "seconds an epoch", "preparing", "forward", "backward and update"]
    header += ["remote rows a rank", "times as fast", "preparing", "times fewer rows"]
    return table(header, lines)


def _scaling(part: Result) -> str:
    lines, first = [], None
    for ranks, entries in by(part["series"], "ranks"):
        cpu = median(sum(of_ranks(one, "cpu")) for one in entries)
        first = first or cpu
        sent = median(
            sum(sum(of_ranks(one, kind, "bytes")) for kind in ("topology", "features", "gradients"))
            for one in entries
        )
        lines.append([f"{ranks}", f"{cpu:.1f}", f"{cpu / first:.2f}", f"{sent / 1e6:,.0f}"])
    return table(
        ["ranks", "CPU s of an epoch of SAGE, all ranks", "times one rank", "MB over the wire"], lines
    )


def _partitioning(part: Result) -> str:
    lines = []
    for one in part["series"]:
        seconds, told = max(of_ranks(one, "wall")), one["of_ranks"][0]
        allowed = [2 * share + SLACK for share in of_ranks(one, "share")]
        lines.append(
            [
                f"{one['ranks']} ranks, {one['policy']}",
                f"{seconds:.1f}",
                f"{told['edges'] / seconds / 1e6:.1f}",
                f"{mean(of_ranks(one, 'share')) / MIB:,.0f}",
                f"{max(of_ranks(one, 'peak')) / MIB:,.0f}",
                f"{min(allowed) / MIB:,.0f}",
                f"{100 * told['edge_cut']:.1f} %",
                *(f"{told['balance'][name]:.2f}" for name in ("nodes", "edges", "train")),
            ]
        )
    header = ["partitioning", "seconds", "M edges/s", "part, MiB", "peak, MiB", "twice the part + 256"]
    return table([*header, "edge cut", "nodes", "edges", "training nodes"], lines) + (
        "\n\nBalance is the largest part by the mean."
    )


def rank_accuracy(result: Result) -> str:
    """Mean test accuracies on one and more ranks, and the paired differences with their lower bounds."""
    lines = [
        [
            f"{dataset}, {figures['ranks']} ranks",
            str(found["seeds"]),
            f"{found['mean'][str(figures['ranks'])]:.2f}",
            f"{found['mean']['1']:.2f}",
            f"{figures['mean_difference']:+.2f}",
            f"{figures['lower_95']:+.2f}",
        ]
        for dataset, found in result["datasets"].items()
        for figures in found["pairs"]
    ]
    header = ["", "seeds", "%", "one process, %", "mean difference", "lower 95 % bound"]
    return table(header, lines)


WRITERS = {
    "rows": _rows,
    "network": _network,
    "training": _training,
    "scaling": _scaling,
    "partitioning": _partitioning,
    "dist_dgl": _dist_dgl,
}
