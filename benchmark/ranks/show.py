"""The tables and the picture of the benchmark of many ranks."""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean
from typing import Any

import matplotlib.pyplot as plt

from benchmark.ranks import show_peer
from benchmark.support.plots import OURS_COLOUR
from benchmark.support.rounds import typical
from benchmark.support.tables import MIB, Result, by, of_ranks, size_name
from benchmark.support.tables import table as markdown

SLACK = 256 * MIB  # what a rank may use beside twice its share


def table(result: Result) -> str:
    """Returns one table for each part that was measured."""
    parts = [WRITERS[name](result["parts"][name]) for name in WRITERS if name in result["parts"]]
    return "\n\n".join(parts)


def _rows(part: Result) -> str:
    lines = []
    least = {one["ranks"]: of_ranks(one, "distinct") for one in part["series"] if not one["hybrid"]}
    for one in part["series"]:
        fetched, bound = of_ranks(one, "rows_fetched"), least[one["ranks"]]
        received, sent = of_ranks(one, "features", "bytes"), of_ranks(one, "features", "sent")
        topology = ", hybrid" if one["hybrid"] else ""
        lines.append(
            [
                f"{one['ranks']} ranks{topology}, B = {size_name(one['macrobatch'])}",
                f"{one['of_ranks'][0]['minibatches']}",
                f"{mean(fetched):,.0f}",
                f"{mean(bound):,.0f}",
                f"{sum(fetched) / sum(bound):.1f}",
                f"{mean(received) / 1e6:,.0f}",
                _overhead(sum(fetched), one["of_ranks"][0]["row_bytes"], sum(received) + sum(sent)),
                f"{of_ranks(one, 'topology', 'rounds')[0]:.0f}",
                f"{of_ranks(one, 'features', 'rounds')[0]:.0f}",
                f"{mean(of_ranks(one, 'topology', 'bytes')) / 1e6:,.0f}",
            ]
        )
    header = ["feature rows of an epoch, mean over ranks", "minibatches", "fetched", "the least", "times it"]
    header += ["MB received", "of bytes not rows and ids", "topology rounds", "feature rounds", "topology MB"]
    return markdown(header, lines)


def _overhead(fetched: float, row_bytes: int | None, moved: float) -> str:
    """Returns the share of bytes that are not rows and ids; nothing where rows differ in width."""
    if row_bytes is None:
        return ""
    needed = 2 * fetched * (row_bytes + 4)  # at both ends
    return f"{100 * (1 - needed / moved):.1f} %"


def _network(part: Result) -> str:
    lines, first = [], None
    for size, entries in by(part["series"], "macrobatch"):
        wall = typical(max(of_ranks(one, "wall")) for one in entries)
        cpu = typical(sum(of_ranks(one, "cpu")) for one in entries)
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
    header += ["CPU s, all ranks", "feature MB per rank", "topology MB per rank"]
    return markdown(header, lines)


def _training(part: Result) -> str:
    lines = []
    for setting, entries in by(part["series"], "setting"):
        phases = {
            name: typical(mean(of_ranks(one, "phases", name)) for one in entries)
            for name in ("prepare", "forward", "backward")
        }
        lines.append(
            [
                f"2 ranks, {setting}",
                f"{typical(max(of_ranks(one, 'wall')) for one in entries):.2f}",
                *(f"{seconds:.2f}" for seconds in phases.values()),
                f"{typical(sum(of_ranks(one, 'cpu')) for one in entries):.1f}",
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
    return markdown([*header, "CPU s, all ranks", "gradient MB per rank"], lines)


def _scaling(part: Result) -> str:
    lines, first = [], None
    for ranks, entries in by(part["series"], "ranks"):
        cpu = typical(sum(of_ranks(one, "cpu")) for one in entries)
        first = first or cpu
        sent = typical(
            sum(sum(of_ranks(one, kind, "bytes")) for kind in ("topology", "features", "gradients"))
            for one in entries
        )
        lines.append([f"{ranks}", f"{cpu:.1f}", f"{cpu / first:.2f}", f"{sent / 1e6:,.0f}"])
    return markdown(
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
    return markdown([*header, "edge cut", "nodes", "edges", "training nodes"], lines) + (
        "\n\nBalance is the largest part by the mean."
    )


WRITERS = {
    "rows": _rows,
    "network": _network,
    "training": _training,
    "scaling": _scaling,
    "partitioning": _partitioning,
    "dist_dgl": show_peer.training,
    "dist_dgl_preparation": show_peer.preparation,
}


def plot(result: Result) -> Any:
    """Draws seconds to prepare an epoch by macrobatch size, and rows fetched against the least."""
    parts = {name: result["parts"][name] for name in ("network", "rows") if name in result["parts"]}
    figure, axes = plt.subplots(1, max(len(parts), 1), figsize=(5.5 * max(len(parts), 1), 3.2), squeeze=False)
    for panel, (name, part) in zip(axes.flat, parts.items(), strict=True):
        DRAWN[name](panel, part)
    return figure


def _preparation(axes: Any, part: Result) -> None:
    """Draws bars of the slowest rank's seconds."""
    found = {
        size_name(size): typical(max(of_ranks(one, "wall")) for one in entries)
        for size, entries in by(part["series"], "macrobatch")
    }
    bars = axes.bar(list(found), list(found.values()), color=OURS_COLOUR)
    axes.bar_label(bars, labels=[f"{seconds:.1f}" for seconds in found.values()], padding=2)
    axes.set_xlabel("minibatches made together")
    axes.set_ylabel("s to prepare an epoch")
    axes.set_title(f"{len(part['series'][0]['of_ranks'])} hosts, {part['network']} links", fontsize=10)
    axes.margins(y=0.15)


def _fetched(axes: Any, part: Result) -> None:
    """Draws the rows of a rank at B = 1 and B = all, and a line for the least possible."""
    chosen = [one for one in part["series"] if not one["hybrid"]]
    names = [f"{one['ranks']} ranks\nB = {size_name(one['macrobatch'])}" for one in chosen]
    rows = [mean(of_ranks(one, "rows_fetched")) / 1e6 for one in chosen]
    least = [mean(of_ranks(one, "distinct")) / 1e6 for one in chosen]
    bars = axes.bar(names, rows, color=OURS_COLOUR)
    axes.bar_label(bars, labels=[f"{value:.2f}" for value in rows], padding=2)
    left, right = ([at + by_half for at in range(len(least))] for by_half in (-0.4, 0.4))
    axes.hlines(least, left, right, color="black", label="distinct remote rows: the least")
    axes.set_ylabel("million feature rows per rank")
    axes.set_title("fetched in an epoch", fontsize=10)
    axes.margins(y=0.15)
    axes.legend()


DRAWN: dict[str, Callable[[Any, Result], None]] = {"network": _preparation, "rows": _fetched}
