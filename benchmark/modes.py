"""Sampling and loading by types, times, weights and links, against PyG with pyg-lib and DGL.

Each row of the table is one kind of work. Those with types are on a graph like ogbn-mag with both
directions of its relations, the others on a graph like ogbn-products. All but sampling include
features. Choose rows with --rows and smaller graphs with --scale. Rows that are not asked for stay
as they are stored, if their options are the same.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmark.support import mag
from benchmark.support.cli import (
    GRAPH_FILES,
    Peers,
    add_peer_option,
    add_round_options,
    merged,
    new_parser,
    read_json,
    stamped,
    write_json,
)
from benchmark.support.graphs import GraphFolder, dataset_folder
from benchmark.support.harness import Players, ProcessSetting
from benchmark.support.jobs import Options
from benchmark.support.machine import CACHE, gather_limit, row_gather_limit
from benchmark.support.tables import (
    LOADS_PER_EDGE,
    OURS,
    SECONDS,
    Result,
    absences,
    figures_of,
    in_words,
    markdown,
    milliseconds,
    paragraph,
    threads_in_words,
)

PRODUCTS = {"degree": 50.5, "features": 100, "classes": 47}
PRODUCTS_NODES = 2_449_029
#: The contestants by name: side and job. The sides' names are those of environments, too.
CSC, PYG, DGL = "ours, CSC only", "PyG", "DGL"
SIDES = {OURS: ("ours", "work"), CSC: ("ours", "csc"), PYG: ("pyg", "work"), DGL: ("dgl", "work")}
RATE = "edges_per_second"


@dataclass(frozen=True)
class Row:
    """One kind of work."""

    name: str  # its name, which contestants know
    fanouts: tuple[int, ...]  # neighbours per hop, from the seeds
    contestants: tuple[str, ...] = (OURS, PYG)  # the names of those that can do it
    typed: bool = False  # True if it is on the typed graph
    rate: bool = False


ROWS = {
    row.name: row
    for row in (
        Row("typed sampling", (15, 10), (OURS, CSC, PYG, DGL), typed=True, rate=True),
        Row("typed loading", (15, 10), typed=True),
        Row("disjoint", (10, 10)),
        Row("temporal, uniform", (10, 10)),
        Row("temporal, last", (10, 10)),
        Row("weighted", (15, 10, 5), (OURS, PYG, DGL)),
        Row("links", (15, 10)),
    )
}


def graphs_parser(description: str | None, rows: Iterable[str], batches: int) -> argparse.ArgumentParser:
    """Returns the parser of a benchmark with rows on a typed graph and on one without types."""
    result, names = new_parser(description), list(rows)
    add = result.add_argument
    add("--rows", nargs="+", choices=names, default=names, metavar="ROW", help=f"some of: {', '.join(names)}")
    add("--scale", type=float, default=1.0, help="size of generated graphs, as a share of the originals'")
    add("--graph", type=Path, help=f"folder with {GRAPH_FILES}")
    add("--typed-graph", type=Path, help="folder as benchmark/support/mag.py describes it")
    add_round_options(result, batches, rounds=9, threads=(1, 2))
    add_peer_option(result)
    return result


def chosen_options(chosen: argparse.Namespace, typed: Iterable[bool], **others: Any) -> Options:
    """Returns the workload, and generates the graphs that rows need where none is given."""
    kinds, found = set(typed), Options("", typed_graph="", **others)
    if True in kinds:
        generated = CACHE / "graphs" / f"mag-like-{chosen.scale:g}"
        folder = chosen.typed_graph or mag.generate(generated, chosen.scale).path
        found = replace(found, typed_graph=str(folder.resolve()))
    if False in kinds:
        size = {"nodes": int(PRODUCTS_NODES * chosen.scale), **PRODUCTS}
        folder = chosen.graph or dataset_folder(f"products-like-{chosen.scale:g}", "generated", **size).path
        found = replace(found, graph=str(folder.resolve()))
    sizes = {name: getattr(chosen, name) for name in ("batches", "batch_size", "macrobatch", "seed")}
    return replace(found, **sizes)


def head(benchmark: str, chosen: argparse.Namespace, options: Options, **others: Any) -> dict[str, Any]:
    """Returns the beginning of a result file: graphs, options, machine and time."""
    graphs = []
    if options.typed_graph:
        graphs.append(mag.TypedFolder.open(options.typed_graph).describe())
    if options.graph:
        graphs.append(GraphFolder.open(options.graph).describe())
    given = {name: getattr(chosen, name) for name in ("batch_size", "batches", "rounds", "scale")}
    given |= {name: str(getattr(chosen, name) or "generated") for name in ("graph", "typed_graph")}
    return stamped(benchmark, graphs=graphs, options={**given, **others})


def store(
    path: Path, content: dict[str, Any], key: Callable[[Result], Hashable], rows: Iterable[str]
) -> None:
    """Writes series among the stored ones, which stay if their options are the same."""
    stored, order = read_json(path), list(rows)
    if stored.get("options") != content["options"]:
        stored = {}
    series = merged(stored.get("series", []), content["series"], key)
    graphs = {one["name"]: one for one in (*stored.get("graphs", []), *content["graphs"])}
    limits = merged(stored.get("limits", []), content.get("limits", []), lambda one: int(one["threads"]))
    result = {
        **content,
        "graphs": list(graphs.values()),
        "series": sorted(series, key=lambda one: (one["threads"], order.index(one["row"]))),
    }
    if limits:
        result["limits"] = sorted(limits, key=lambda one: int(one["threads"]))
    write_json(path, result)


def series(
    rows: Sequence[Row], options: Options, setting: ProcessSetting, peers: Peers, rounds: int
) -> Iterator[dict[str, Any]]:
    """Yields the series of each row, measured by the same processes."""
    contestants = [peers.contestant(name, *what) for name, what in SIDES.items()]
    with Players(contestants, setting) as players:
        for row in rows:
            print(f"{row.name}, {setting.threads} thread(s)", flush=True)
            work = replace(options, work=row.name, fanouts=row.fanouts)
            yield {**players.series(work, rounds, names=row.contestants).as_dict(), "row": row.name}


def limits(options: Options, threads: int) -> dict[str, Any]:
    """Returns the rates of random loads, and of random rows of the graphs' features."""
    tables = {}
    if options.graph:
        graph = GraphFolder.open(options.graph).describe()
        tables["plain"] = (graph["nodes"], 4 * graph["features"])
    if options.typed_graph:
        papers = mag.TypedFolder.open(options.typed_graph).num_nodes[mag.SEEDS]
        tables["typed"] = (papers, 4 * mag.FEATURES)
    rates = row_gather_limit(threads, list(tables.values()))
    rows = {name: one["bytes_per_second"] for name, one in zip(tables, rates, strict=True)}
    return {"threads": threads, "loads_per_second": gather_limit(threads)["loads_per_second"], "rows": rows}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures the chosen rows, then stores the JSON file."""
    chosen = graphs_parser(__doc__, ROWS, batches=6).parse_args(arguments)
    rows = [ROWS[name] for name in chosen.rows]
    options, peers = chosen_options(chosen, [row.typed for row in rows]), Peers(dict(chosen.peer))
    settings = [ProcessSetting(threads) for threads in chosen.threads]
    found = [one for setting in settings for one in series(rows, options, setting, peers, chosen.rounds)]
    content = head("modes", chosen, options)
    content |= {"series": found, "limits": [limits(options, setting.threads) for setting in settings]}
    store(chosen.results / "modes.json", content, lambda one: (one["row"], one["threads"]), ROWS)


def in_short(result: Result) -> str:
    """Returns the graphs and the workload."""
    sizes = [
        f"{one['name']}: {one['nodes']:,} nodes, {one['edges']:,} edges, {one['features']} features"
        for one in result["graphs"]
    ]
    options = result["options"]
    rounds = f"{in_words(options['rounds'])} of {options['batches']} minibatches"
    return paragraph("; ".join([*sizes, f"batch {options['batch_size']:,}; {rounds}"]) + ".")


def table(result: Result) -> str:
    """Returns the table: one row per work and number of threads."""
    lines = [_line(one, result) for one in result["series"]]
    header = [
        *("", "ours ms", "M edges/s", "edges", "of the limit", "page faults"),
        *("PyG ms", "edges", "ours is faster by", "DGL ms", "edges", "ours is faster by"),
    ]
    rates = ", ".join(
        f"{one['loads_per_second'] / 1e6:.0f} M on {one['threads']}" for one in result["limits"]
    )
    note = (
        f"All figures are per minibatch. Sampling is compared by edges per second, all else by time. The "
        f"limit: {LOADS_PER_EDGE} random 8-byte loads per edge ({rates} thread(s)) and the features at the "
        f"rate of random rows."
    )
    parts = [in_short(result), markdown(header, lines), paragraph(note)]
    return "\n\n".join(parts) + absences(result["series"])


def _line(series: Result, result: Result) -> list[str]:
    row, figures = ROWS[series["row"]], figures_of(series)
    ours, threads = figures.get(OURS), series["threads"]
    name = f"{row.name}, {', '.join(map(str, row.fanouts))}; {threads_in_words(threads)}"
    if ours is None:
        return [name, *["-"] * 11]
    rate = f"{ours[RATE] / 1e6:.1f}"
    if CSC in figures:
        rate += f" (CSC only {figures[CSC][RATE] / 1e6:.1f})"
    own = [milliseconds(ours), rate, f"{ours['edges_per_minibatch']:,.0f}"]
    own += [_share(row, ours, threads, result), f"{ours['faults_per_minibatch']:,.1f}"]
    return [name, *own, *_peer(row, PYG, figures), *_peer(row, DGL, figures)]


def _peer(row: Row, name: str, figures: dict[str, dict[str, float]]) -> list[str]:
    if name not in row.contestants:
        return ["", "", ""]
    ours, theirs = figures[OURS], figures.get(name)
    if theirs is None:
        return ["-", "-", "-"]
    times = ours[RATE] / theirs[RATE] if row.rate else theirs[SECONDS] / ours[SECONDS]
    return [milliseconds(theirs), f"{theirs['edges_per_minibatch']:,.0f}", f"{times:.1f}x"]


def _share(row: Row, ours: dict[str, float], threads: int, result: Result) -> str:
    limit = next(one for one in result["limits"] if one["threads"] == threads)
    seconds = LOADS_PER_EDGE * ours["edges_per_minibatch"] / limit["loads_per_second"]
    size = ours["feature_bytes_per_minibatch"]
    if size:
        seconds += size / limit["rows"]["typed" if row.typed else "plain"]
    return f"{100 * seconds / ours[SECONDS]:.0f} %"
