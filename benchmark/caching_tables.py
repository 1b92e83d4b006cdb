"""The tables of the aggregation cache's benchmark, in Markdown, from the content of its result files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import mean, median

from distributed_tables import by, of_ranks, size_name
from tables import Result, table

MIB = 2**20
WAYS = {False: "without", True: "with"}


def caching(result: Result) -> str:
    """All parts that were measured, a table each."""
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
                    f"{median(max(of_ranks(one, 'wall')) for one in entries):.2f}",
                    f"{median(sum(of_ranks(one, 'cpu')) for one in entries):.2f}",
                    f"{mean(of_ranks(entries[0], 'features', 'rows')):,.0f}",
                    f"{mean(of_ranks(entries[0], 'features', 'bytes')) / 1e6:,.0f}",
                    f"{mean(of_ranks(entries[0], 'bytes')) / MIB:,.0f}",
                    f"{max(of_ranks(entries[0], 'peak')) / MIB:,.0f}",
                ]
            )
    header = ["making the cache", "seconds", "CPU s, all ranks", "rows and ids received a rank"]
    return table([*header, "MB received a rank", "cache, MiB a rank", "peak beside the graph, MiB"], lines)


def _pairs(part: Result) -> Iterator[tuple[str, bool, list[Result], list[Result]]]:
    """Settings in order: name, with or without, entries, and the entries without."""
    for model, of_model in by(part["series"], "model"):
        for size, entries in by(of_model, "macrobatch"):
            without = [one for one in entries if not one["cached"]]
            for cached in (False, True):
                name = f"{model}, B = {size_name(size)}, {WAYS[cached]}"
                yield name, cached, [one for one in entries if one["cached"] is cached], without


def _seconds(entries: list[Result]) -> float:
    return median(max(of_ranks(one, "wall")) for one in entries)


def _preparation(part: Result) -> str:
    lines = []
    for name, _, entries, without in _pairs(part):
        one = entries[0]
        lines.append(
            [
                name,
                f"{_seconds(entries):.2f}",
                f"{_seconds(without) / _seconds(entries):.2f}x",
                f"{median(sum(of_ranks(one, 'cpu')) for one in entries):.1f}",
                f"{mean(of_ranks(one, 'nodes')):,.0f}",
                f"{mean(of_ranks(one, 'rows_fetched')):,.0f}",
                f"{mean(of_ranks(one, 'features', 'bytes')) / 1e6:,.0f}",
                f"{mean(of_ranks(one, 'topology', 'bytes')) / 1e6:,.1f}",
            ]
        )
    first = part["series"][0]
    ranks, batches = len(first["of_ranks"]), first["of_ranks"][0]["minibatches"]
    header = [f"preparing {batches} minibatches a rank, {ranks} hosts, {first['network']} links", "seconds"]
    header += ["times as fast", "CPU s, all ranks", "nodes a rank", "rows fetched a rank"]
    return table([*header, "feature MB a rank", "topology MB a rank"], lines)


def _training(part: Result) -> str:
    lines = []
    for name, _, entries, without in _pairs(part):
        phases = [
            f"{median(mean(of_ranks(one, 'phases', phase)) for one in entries):.2f}"
            for phase in ("prepare", "forward", "backward")
        ]
        cpu = f"{median(sum(of_ranks(one, 'cpu')) for one in entries):.1f}"
        faster = f"{_seconds(without) / _seconds(entries):.2f}x"
        lines.append([name, f"{_seconds(entries):.2f}", faster, *phases, cpu])
    first = part["series"][0]
    ranks, batches = len(first["of_ranks"]), first["of_ranks"][0]["minibatches"]
    header = [f"an epoch of {batches} minibatches a rank, {ranks} ranks, {first['network']}", "seconds"]
    return table([*header, "times as fast", "preparing", "forward", "backward", "CPU s, all ranks"], lines)


def _accuracy(series: list[Result]) -> str:
    lines = []
    for one in series:
        values = [f"{one['mean'][way]:.2f} ± {one['spread'][way]:.2f}" for way in one["mean"]]
        lines.append([f"{one['dataset']}, {one['model']}", str(one["seeds"]), *values])
    header = ["test accuracy, %: mean ± deviation", "seeds", "without", "with, tested with"]
    return table([*header, "with, tested without"], lines)


WRITERS: dict[str, Callable[[Result], str]] = {
    "initialisation": _initialisation,
    "preparation": _preparation,
    "training": _training,
}
