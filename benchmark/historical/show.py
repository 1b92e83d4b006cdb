"""The tables and the picture of test accuracies with historical embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

import matplotlib.pyplot as plt

from benchmark.historical.epochs import EPOCHS
from benchmark.historical.measure import ALLOWED_LOSS, PAPER, RANKS, VARIED
from benchmark.support.plots import OURS_COLOUR, PEER_COLOUR
from benchmark.support.rounds import typical
from benchmark.support.tables import Result, by, of_ranks
from benchmark.support.tables import table as markdown

#: The labels below the panels of the picture of accuracies.
_AXES = ("ranks", "life span ls, steps; 2 ranks", "delay d, steps; 2 ranks", "rows pushed nc; 2 ranks")


def table(result: Result) -> str:
    """Returns the table of accuracies, or that of epochs."""
    return _epochs(result["parts"]["epochs"]) if "parts" in result else _accuracies(result)


def _epochs(part: Result) -> str:
    found = {setting: _epoch(entries) for setting, entries in by(part["series"], "setting")}
    first = found["B = 1"]["seconds"]
    lines = [
        [
            setting,
            f"{one['seconds']:.2f}",
            f"{first / one['seconds']:.1f}x",
            *(f"{one[phase]:.2f}" for phase in ("prepare", "forward", "backward")),
            *(
                "-" if one[what] is None else f"{one[what]:,.1f}"
                for what in ("topology", "features", "pushed")
            ),
            "-" if one["waited"] is None else f"{one['waited']:.2f}",
        ]
        for setting, one in found.items()
    ]
    header = [f"an epoch of SAGE, 4 hosts, {part['network']} links", "seconds", "times as fast as B = 1"]
    header += [
        "preparing",
        "forward",
        "backward and update",
        "topology MB per rank",
        "feature MB",
        "pushed MB",
    ]
    return markdown([*header, "seconds waited for pushes"], lines)


def _epoch(entries: list[Result]) -> dict[str, Any]:
    """Returns the figures of an epoch, and what a rank received in it."""
    one = entries[0]["of_ranks"][0]
    theirs = "remote_rows" in one
    before = ("sample", "features") if theirs else ("prepare",)

    def phase(*names: str) -> float:
        return typical(sum(mean(of_ranks(entry, "phases", name)) for name in names) for entry in entries)

    def megabytes(*path: str) -> float:
        return mean(of_ranks(entries[0], *path)) / 1e6

    figures: dict[str, Any] = {
        "seconds": typical(max(of_ranks(entry, "wall")) for entry in entries),
        **{"prepare": phase(*before), "forward": phase("forward"), "backward": phase("backward")},
        **dict.fromkeys(("topology", "features", "pushed", "waited")),
    }
    if theirs:
        rows = mean(of_ranks(entries[0], "remote_rows"))
        return figures | {"features": rows * one["row_bytes"] / 1e6}
    figures |= {"topology": megabytes("topology", "bytes"), "features": megabytes("features", "bytes")}
    if "pushed" in one:
        figures["pushed"] = megabytes("pushed", "bytes") / EPOCHS
        figures["waited"] = mean(of_ranks(entries[0], "historical", "waited_seconds")) / EPOCHS
    return figures


def _accuracies(result: Result) -> str:
    lines = [
        [
            f"{dataset}, {one['ranks']} ranks, {one['variant']}",
            f"{one['mean']:.2f}",
            f"{found['alone']:.2f}",
            f"{one['mean_difference']:+.2f}",
            _percent(one.get("hit_rates", [])),
            _percent(one.get("edges_left_out", [])),
            f"{one['megabytes']:.1f}" if "megabytes" in one else "",
        ]
        for dataset, found in result["datasets"].items()
        for one in found["variants"]
    ]
    header = ["", "%", "one process, %", "difference", "hits by layer, %", "edges left out, %", "MB pushed"]
    return markdown(header, lines)


def plot(result: Result) -> Any:
    """Draws the accuracy against each setting, the others being the paper's; or epochs."""
    return _plot_epochs(result["parts"]["epochs"]) if "parts" in result else _plot_accuracies(result)


def _plot_epochs(part: Result) -> Any:
    found = {setting: _epoch(entries) for setting, entries in by(part["series"], "setting")}
    figure, (seconds, size) = plt.subplots(1, 2, figsize=(9, 3), sharey=True)
    names = list(found)[::-1]
    bars = seconds.barh(names, [found[name]["seconds"] for name in names], color=OURS_COLOUR)
    seconds.bar_label(bars, fmt="%.1f", padding=3, fontsize=8)
    seconds.set_xlabel("seconds per epoch")
    left = [0.0] * len(names)
    for kind, colour in (("topology", "#9ecae1"), ("features", OURS_COLOUR), ("pushed", PEER_COLOUR)):
        widths = [found[name][kind] or 0.0 for name in names]
        size.barh(names, widths, left=left, color=colour, label=kind)
        left = [one + width for one, width in zip(left, widths, strict=True)]
    size.set_xlabel("MB received per rank and epoch")
    size.set_xlim(0, 1.05 * max(left))
    size.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, fontsize=7, frameon=False)
    seconds.margins(x=0.15)
    return figure


def _plot_accuracies(result: Result) -> Any:
    figure, panels = plt.subplots(1, 1 + len(VARIED), figsize=(13, 3.4), sharey=True)
    ranks = [(count, variant) for count in RANKS for variant in ("exact", "paper")]
    for dataset, found in result["datasets"].items():
        figures = {(one["ranks"], one["variant"]): one for one in found["variants"]}
        _draw(panels[0], dataset, [figures.get(one) for one in ranks], "none")
        for axes, (name, values) in zip(panels[1:], VARIED.items(), strict=True):
            names = ["paper" if value == PAPER[name] else f"{name}={value}" for value in values]
            _draw(axes, dataset, [figures.get((2, one)) for one in names], "-")
    texts = [[f"{count}, {variant}" for count, variant in ranks]]
    texts += [[str(value).lower() for value in values] for values in VARIED.values()]
    for axes, ticks, label in zip(panels, texts, _AXES, strict=True):
        axes.axhline(0, color="black", linewidth=0.5)
        axes.axhline(-ALLOWED_LOSS, color=PEER_COLOUR, linewidth=0.5, linestyle="--")
        axes.set_xticks(range(len(ticks)), ticks, fontsize=8)
        axes.set_xlabel(label, fontsize=9)
    panels[0].set_ylabel("points against one process")
    panels[-1].legend(fontsize=7)
    return figure


def _draw(axes: Any, dataset: str, points: Sequence[Result | None], line: str) -> None:
    """Draws mean differences and their standard errors; points that are not measured are absent."""
    known = [(at, one["mean_difference"], one["standard_error"]) for at, one in enumerate(points) if one]
    if known:
        places, means, errors = zip(*known, strict=True)
        axes.errorbar(places, means, yerr=errors, marker="o", linestyle=line, capsize=3, label=dataset)


def _percent(shares: Sequence[float]) -> str:
    return " / ".join(f"{100 * share:.1f}" for share in shares)
