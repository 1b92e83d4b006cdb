"""The table of the benchmark of traffic, in Markdown, and its picture."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean
from typing import Any

import matplotlib.pyplot as plt

from benchmark.support.tables import MIB, Result, by, paragraph, size_name
from benchmark.support.tables import table as markdown


def table(result: Result) -> str:
    """Returns one line per training set, schedule, macrobatch size and policy."""
    lines = []
    for unbalanced, sides in by(result["partition_traffic"], "unbalanced"):
        rows = {one["side"]: one for one in sides}
        for at, first in enumerate(sides[0]["draws"][0][0]["epochs"]):
            where = [
                "together" if unbalanced else "spread",
                first["schedule"],
                size_name(first["macrobatch"]),
            ]
            busy = result["setting"]["busy"]
            for one in sides:
                metis = rows.get("METIS, nodes" if one["side"].endswith(", nodes") else "METIS, several")
                lines.append([*where, *_line(one, at, metis, busy=busy)])
    header = ["training nodes", "schedule", "B", "policy", "edge cut", "train, max / mean"]
    header += ["seeds of a rank, max / mean", "rows fetched", "over METIS", "MiB received"]
    header += ["most of a rank, MiB", "seconds"]
    return "\n\n".join([*_against_metis(result), markdown(header, lines), paragraph(_setting(result))])


def _against_metis(result: Result) -> list[str]:
    """Returns a table of the rows over those of METIS's parts, in the worst of all cases."""
    worst: dict[str, dict[str, float]] = {}
    for _, sides in by(result["partition_traffic"], "unbalanced"):
        for one in sides:
            for peer in sides:
                if peer["side"].startswith("METIS"):
                    ratio = max(_rows(one, at) / _rows(peer, at) for at in range(_epochs(one)))
                    of_side = worst.setdefault(one["side"], {})
                    of_side[peer["side"]] = max(ratio, of_side.get(peer["side"], 0.0))
    if not worst:
        return []
    peers = sorted({peer for of_side in worst.values() for peer in of_side})
    lines = [[side, *(f"{of_side[peer]:.3f}" for peer in peers)] for side, of_side in worst.items()]
    title = "Rows fetched over those with METIS's parts, at most over training sets, schedules and B:"
    return [title, markdown(["policy", *peers], lines)]


def _epochs(one: Result) -> int:
    return len(one["draws"][0][0]["epochs"])


def plot(result: Result) -> Any:
    """Draws the rows fetched at B = 1 and all, by policy, local seeds."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 3.6), sharey=True)
    for ax, (unbalanced, sides) in zip(axes, by(result["partition_traffic"], "unbalanced"), strict=True):
        for at, epoch in enumerate(sides[0]["draws"][0][0]["epochs"]):
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
        f"per minibatch, network {found['network']}. Means over {found['draws']} generated graphs."
    )


def _mean(one: Result, figure: Callable[[list[Result]], float]) -> float:
    """Returns the mean over graphs of a figure of all ranks."""
    return fmean(figure(of_ranks) for of_ranks in one["draws"])


def _rows(one: Result, epoch: int) -> float:
    return _mean(one, lambda ranks: sum(rank["epochs"][epoch]["rows_fetched"] for rank in ranks))


def _received(rank: Result, epoch: int) -> float:
    """Returns the MiB of all kinds that a rank received."""
    return sum(kind["bytes"] for kind in rank["epochs"][epoch].values() if isinstance(kind, dict)) / MIB


def _seeds(ranks: list[Result], epoch: int) -> float:
    """Returns the seeds of the rank that has the most, over the mean."""
    seeds = [rank["epochs"][epoch]["seeds"] for rank in ranks]
    return max(seeds) * len(seeds) / sum(seeds)


def _line(one: Result, at: int, metis: Result | None, *, busy: bool) -> list[str]:
    rows = _rows(one, at)
    return [
        one["side"],
        f"{100 * _mean(one, lambda ranks: ranks[0]['edge_cut']):.2f} %",
        f"{_mean(one, lambda ranks: ranks[0]['balance']['train']):.3f}",
        f"{_mean(one, lambda ranks: _seeds(ranks, at)):.3f}",
        f"{rows:,.0f}",
        f"{rows / _rows(metis, at):.3f}" if metis else "-",
        f"{_mean(one, lambda ranks: sum(_received(rank, at) for rank in ranks)):,.1f}",
        f"{_mean(one, lambda ranks: max(_received(rank, at) for rank in ranks)):,.1f}",
        "-" if busy else f"{_mean(one, lambda ranks: max(rank['epochs'][at]['wall'] for rank in ranks)):.2f}",
    ]
