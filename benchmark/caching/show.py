"""The tables and the pictures of the aggregation cache's benchmark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import mean
from typing import Any

import matplotlib.pyplot as plt

from benchmark.support.rounds import typical
from benchmark.support.tables import MIB, Result, by, of_ranks, size_name
from benchmark.support.tables import table as markdown

WAYS = {False: "without", True: "with"}
COLOURS = {"without": "#b0b0b0", "with": "#1f77b4", "with, tested without": "#9ecae1"}
QUANTITIES = {"preparation": "s to prepare an epoch", "training": "s per epoch"}


def table(result: Result) -> str:
    """Returns one table for each part that was measured."""
    if "accuracy" in result:
        return _accuracy(result["accuracy"])
    written = [WRITERS[name](result["parts"][name]) for name in WRITERS if name in result["parts"]]
    return "\n\n".join(written)


def _initialisation(part: Result) -> str:
    lines = []
    for model, of_model in by(part["series"], "model"):
        for ranks, entries in by(of_model, "ranks"):
            lines.append(
                [
                    f"{model}, {ranks} ranks" if ranks > 1 else f"{model}, 1 rank",
                    f"{typical(max(of_ranks(one, 'wall')) for one in entries):.2f}",
                    f"{typical(sum(of_ranks(one, 'cpu')) for one in entries):.2f}",
                    f"{mean(of_ranks(entries[0], 'features', 'rows')):,.0f}",
                    f"{mean(of_ranks(entries[0], 'features', 'bytes')) / 1e6:,.0f}",
                    f"{mean(of_ranks(entries[0], 'bytes')) / MIB:,.0f}",
                    f"{max(of_ranks(entries[0], 'peak')) / MIB:,.0f}",
                ]
            )
    header = ["making the cache", "seconds", "CPU s, all ranks", "rows and ids received per rank"]
    return markdown(
        [*header, "MB received per rank", "cache, MiB per rank", "peak on top of the graph, MiB"], lines
    )


def _pairs(part: Result) -> Iterator[tuple[str, bool, list[Result], list[Result]]]:
    """Settings in order: name, with or without, entries, and the entries without."""
    for model, of_model in by(part["series"], "model"):
        for size, entries in by(of_model, "macrobatch"):
            without = [one for one in entries if not one["cached"]]
            for cached in (False, True):
                name = f"{model}, B = {size_name(size)}, {WAYS[cached]}"
                yield name, cached, [one for one in entries if one["cached"] is cached], without


def _slowest(entries: list[Result]) -> float:
    return typical(max(of_ranks(one, "wall")) for one in entries)


def _preparation(part: Result) -> str:
    lines = []
    for name, _, entries, without in _pairs(part):
        one = entries[0]
        lines.append(
            [
                name,
                f"{_slowest(entries):.2f}",
                f"{_slowest(without) / _slowest(entries):.2f}x",
                f"{typical(sum(of_ranks(one, 'cpu')) for one in entries):.1f}",
                f"{mean(of_ranks(one, 'nodes')):,.0f}",
                f"{mean(of_ranks(one, 'rows_fetched')):,.0f}",
                f"{mean(of_ranks(one, 'features', 'bytes')) / 1e6:,.0f}",
                f"{mean(of_ranks(one, 'topology', 'bytes')) / 1e6:,.1f}",
            ]
        )
    first = part["series"][0]
    ranks, batches = len(first["of_ranks"]), first["of_ranks"][0]["minibatches"]
    header = [f"preparing {batches} minibatches per rank, {ranks} hosts, {first['network']} links", "seconds"]
    header += ["times as fast", "CPU s, all ranks", "nodes per rank", "rows fetched per rank"]
    return markdown([*header, "feature MB per rank", "topology MB per rank"], lines)


def _training(part: Result) -> str:
    lines = []
    for name, _, entries, without in _pairs(part):
        phases = [
            f"{typical(mean(of_ranks(one, 'phases', phase)) for one in entries):.2f}"
            for phase in ("prepare", "forward", "backward")
        ]
        cpu = f"{typical(sum(of_ranks(one, 'cpu')) for one in entries):.1f}"
        faster = f"{_slowest(without) / _slowest(entries):.2f}x"
        lines.append([name, f"{_slowest(entries):.2f}", faster, *phases, cpu])
    first = part["series"][0]
    ranks, batches = len(first["of_ranks"]), first["of_ranks"][0]["minibatches"]
    header = [f"an epoch of {batches} minibatches per rank, {ranks} ranks, {first['network']}", "seconds"]
    return markdown([*header, "times as fast", "preparing", "forward", "backward", "CPU s, all ranks"], lines)


def _accuracy(series: list[Result]) -> str:
    lines = []
    for one in series:
        values = [f"{one['mean'][way]:.2f} ± {one['spread'][way]:.2f}" for way in one["mean"]]
        lines.append([f"{one['dataset']}, {one['model']}", str(one["seeds"]), *values])
    header = ["test accuracy, %: mean ± deviation", "seeds", "without", "with, tested with"]
    return markdown([*header, "with, tested without"], lines)


WRITERS: dict[str, Callable[[Result], str]] = {
    "initialisation": _initialisation,
    "preparation": _preparation,
    "training": _training,
}


def plot(result: Result) -> Any:
    """Draws seconds with and without, one panel per part; or accuracy per data set."""
    if "accuracy" in result:
        groups = list(by(result["accuracy"], "dataset"))
        figure, axes = plt.subplots(1, max(len(groups), 1), figsize=(11, 3.2), squeeze=False)
        for panel, (dataset, of_dataset) in zip(axes.flat, groups, strict=False):
            _bars(panel, {one["model"]: one["mean"] for one in of_dataset}, "test accuracy, %")
            least = min(value for one in of_dataset for value in one["mean"].values())
            panel.set_ylim(bottom=max(0, least - 10))
            panel.set_title(dataset, fontsize=10)
        return figure
    parts = {name: result["parts"][name] for name in QUANTITIES if name in result["parts"]}
    figure, axes = plt.subplots(1, max(len(parts), 1), figsize=(5.5 * max(len(parts), 1), 3.2), squeeze=False)
    for panel, (name, part) in zip(axes.flat, parts.items(), strict=False):
        _bars(panel, _seconds(part), QUANTITIES[name])
        panel.set_title(part["series"][0]["network"], fontsize=10)
    return figure


def _seconds(part: Result) -> dict[str, dict[str, float]]:
    """Returns the seconds of the slowest rank, by setting and way."""
    found: dict[str, dict[str, float]] = {}
    for model, of_model in by(part["series"], "model"):
        for size, entries in by(of_model, "macrobatch"):
            ways = {
                WAYS[cached]: typical(max(of_ranks(one, "wall")) for one in of_way)
                for cached, of_way in by(entries, "cached")
            }
            found[f"{model}\nB = {size_name(size)}"] = {way: ways[way] for way in WAYS.values()}
    return found


def _bars(axes: Any, values: dict[str, dict[str, float]], label: str) -> None:
    """Draws bars in groups, with one colour per way."""
    ways = list(next(iter(values.values()), {}))
    wide = 0.8 / max(len(ways), 1)
    for number, way in enumerate(ways):
        places = [at + (number - (len(ways) - 1) / 2) * wide for at in range(len(values))]
        heights = [of_group[way] for of_group in values.values()]
        bars = axes.bar(places, heights, wide, label=way, color=COLOURS[way])
        axes.bar_label(bars, labels=[f"{height:.1f}" for height in heights], padding=2, fontsize=7)
    axes.set_xticks(range(len(values)), list(values), fontsize=8)
    axes.set_ylabel(label)
    axes.margins(y=0.15)
    axes.legend(fontsize=7)
