"""The table of the benchmark of traffic, in Markdown, and its picture."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt

from benchmark.support.tables import MIB, Result, by, paragraph, size_name
from benchmark.support.tables import table as markdown


def table(result: Result) -> str:
    """Returns one line per training set, schedule, macrobatch size and policy."""
    lines = []
    for unbalanced, sides in by(result["partition_traffic"], "unbalanced"):
        for at, first in enumerate(sides[0]["of_ranks"][0]["epochs"]):
            metis = next((_rows(one, at) for one in sides if one["side"] == "METIS, several"), None)
            where = [
                "together" if unbalanced else "spread",
                first["schedule"],
                size_name(first["macrobatch"]),
            ]
            busy = result["setting"]["busy"]
            lines += [[*where, *_line(one, at, metis, busy=busy)] for one in sides]
    header = ["training nodes", "schedule", "B", "policy", "edge cut", "train, max / mean"]
    header += ["seeds of a rank, max / mean", "rows fetched", "over METIS, several", "MiB received"]
    header += ["most of a rank, MiB", "seconds"]
    return "\n\n".join([markdown(header, lines), paragraph(_setting(result))])


def plot(result: Result) -> Any:
    """Draws the rows fetched at B = 1 and all, by policy, local seeds."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 3.6), sharey=True)
    for ax, (unbalanced, sides) in zip(axes, by(result["partition_traffic"], "unbalanced"), strict=True):
        for at, epoch in enumerate(sides[0]["of_ranks"][0]["epochs"]):
            label = f"{epoch['schedule']}, B = {size_name(epoch['macrobatch'])}"
            ax.plot(
                [one["side"] for one in sides], [_rows(one, at) / 1e6 for one in sides], "o-", label=label
            )
        ax.set(title=f"training nodes {'together' if unbalanced else 'spread'}", ylim=(0, None))
        ax.tick_params(axis="x", rotation=30)
    axes[0].set_ylabel("million rows fetched in an epoch")
    axes[0].legend(fontsize=7)
    return figure


def _setting(result: Result) -> str:
    found = result["setting"]
    fanouts = ", ".join(map(str, found["fanouts"]))
    return (
        f"Graph {found['graph']}, {found['ranks']} ranks, fanouts {fanouts}, {found['batch_size']} seeds "
        f"per minibatch, network {found['network']}."
    )


def _rows(one: Result, epoch: int) -> int:
    return sum(rank["epochs"][epoch]["rows_fetched"] for rank in one["of_ranks"])


def _line(one: Result, epoch: int, metis: int | None, *, busy: bool) -> list[str]:
    epochs, told = [rank["epochs"][epoch] for rank in one["of_ranks"]], one["of_ranks"][0]
    rows, seeds = _rows(one, epoch), [rank["seeds"] for rank in epochs]
    received = [sum(kind["bytes"] for kind in rank.values() if isinstance(kind, dict)) for rank in epochs]
    return [
        one["side"],
        f"{100 * told['edge_cut']:.2f} %",
        f"{told['balance']['train']:.3f}",
        f"{max(seeds) * len(seeds) / sum(seeds):.3f}",
        f"{rows:,}",
        f"{rows / metis:.3f}" if metis else "-",
        f"{sum(received) / MIB:,.1f}",
        f"{max(received) / MIB:,.1f}",
        "-" if busy else f"{max(rank['wall'] for rank in epochs):.2f}",
    ]
