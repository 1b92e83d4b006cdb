"""Sampling and loading by types, times, weights and links, against PyG with pyg-lib and DGL.

Each row of the table is one kind of work. Those with types are on a graph like ogbn-mag with both
directions of its relations, the others on a graph like ogbn-products. All but sampling include
features. Choose rows with --rows and smaller graphs with --scale. Rows that are not asked for stay
as they are stored, if their options are the same.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmark.modes.relations import ADDED
from benchmark.modes.relations import measure as measure_relations
from benchmark.modes.rows import ENVIRONMENTS, RELATIONS, ROWS, SIDES, Row
from benchmark.support import mag
from benchmark.support.cli import RESULTS, Peers, add_peer_option, read_json, write_json
from benchmark.support.graphs import GraphFolder
from benchmark.support.harness import Contestant, Players
from benchmark.support.jobs import Options
from benchmark.support.machine import describe
from benchmark.support.native import CACHE, gather_limit, row_gather_limit
from benchmark.support.prepare import dataset_folder
from benchmark.support.settings import ProcessSetting
from benchmark.support.stored import merged, merged_graphs

PRODUCTS = {"degree": 50.5, "features": 100, "classes": 47}
PRODUCTS_NODES = 2_449_029


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    result = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = result.add_argument
    every = [*ROWS, RELATIONS]
    add("--rows", nargs="+", choices=every, default=every, metavar="ROW", help=f"some of: {', '.join(every)}")
    add("--scale", type=float, default=1.0, help="size of generated graphs, as a share of the originals'")
    add("--graph", type=Path, help="folder with colptr.npy, row.npy, x.npy, y.npy, train_idx.npy")
    add("--typed-graph", type=Path, help="folder as benchmark/support/mag.py describes it")
    add("--threads", type=int, nargs="+", default=[1, 2], help="thread counts, one after another")
    add("--rounds", type=int, default=9, help="rounds measured, after one unmeasured")
    add("--batches", type=int, default=6, help="minibatches per contestant and round")
    add("--batch-size", type=int, default=1024, help="seed nodes or links per minibatch")
    add("--macrobatch", type=int, default=0, help="minibatches sampled together; 0: the loader's own choice")
    add("--seed", type=int, default=0, help="seed that chooses the seed nodes")
    add("--results", type=Path, default=RESULTS, help="folder for the JSON file")
    add_peer_option(result)
    return result


def typed_graph(folder: Path | None, scale: float) -> str:
    """Returns the folder of the typed graph, of one that is generated if none is given."""
    found = folder or mag.generate(CACHE / "graphs" / f"mag-like-{scale:g}", scale).path
    return str(found.resolve())


def plain_graph(folder: Path | None, scale: float) -> str:
    """Returns the folder of the graph without types, of one that is generated if none is given."""
    if folder is None:
        nodes = int(PRODUCTS_NODES * scale)
        folder = dataset_folder(f"products-like-{scale:g}", "generated", nodes=nodes, **PRODUCTS).path
    return str(folder.resolve())


def chosen_options(chosen: argparse.Namespace, rows: Sequence[Row]) -> Options:
    """Returns the workload, and generates the graphs that rows need."""
    needs_typed, needs_plain = any(row.typed for row in rows), not all(row.typed for row in rows)
    return Options(
        graph=plain_graph(chosen.graph, chosen.scale) if needs_plain else "",
        typed_graph=typed_graph(chosen.typed_graph, chosen.scale) if needs_typed else "",
        batches=chosen.batches,
        batch_size=chosen.batch_size,
        macrobatch=chosen.macrobatch,
        seed=chosen.seed,
    )


def contestants(peers: Peers) -> list[Contestant]:
    """Returns all sides, each with a process that does all rows."""
    return [
        Contestant(name, side, job, peers.python(ENVIRONMENTS[name])) for name, (side, job) in SIDES.items()
    ]


def series(
    rows: Sequence[Row], options: Options, setting: ProcessSetting, peers: Peers, rounds: int
) -> Iterator[dict[str, Any]]:
    """Yields the series of each row, measured by the same processes."""
    with Players(contestants(peers), setting) as players:
        for row in rows:
            print(f"{row.work}, {setting.threads} thread(s)", flush=True)
            work = replace(options, work=row.work, fanouts=row.fanouts)
            found = players.series(work, rounds, names=row.contestants).as_dict()
            yield {**found, "work": row.work}


def limits(options: Options, threads: int) -> dict[str, Any]:
    """Returns the rates of random loads, and of random rows of the graphs' features."""
    tables = []
    if options.graph:
        graph = GraphFolder.open(options.graph).describe()
        tables.append((graph["nodes"], 4 * graph["features"]))
    if options.typed_graph:
        papers = mag.TypedFolder.open(options.typed_graph).num_nodes[mag.SEEDS]
        tables.append((papers, 4 * mag.FEATURES))
    return {**gather_limit(threads), "rows": row_gather_limit(threads, tables)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures the chosen rows, then stores the JSON file."""
    chosen = parser().parse_args(arguments)
    rows = [ROWS[name] for name in chosen.rows if name in ROWS]
    options = chosen_options(chosen, rows)
    peers, settings = Peers(dict(chosen.peer)), [ProcessSetting(threads) for threads in chosen.threads]
    found: list[dict[str, Any]] = []
    for setting in settings if rows else []:
        found += series(rows, options, setting, peers, chosen.rounds)
    content: dict[str, Any] = {
        "benchmark": "modes",
        "graphs": graphs(options),
        "options": {
            **{"batch_size": options.batch_size, "batches": options.batches, "rounds": chosen.rounds},
            **{"scale": chosen.scale},
            **{key: str(getattr(chosen, key) or "generated") for key in ("graph", "typed_graph")},
        },
        "machine": describe(),
        "when": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "series": found,
        "limits": [limits(options, setting.threads) for setting in settings if rows],
    }
    if RELATIONS in chosen.rows:
        print(f"{ADDED} relations that minibatches do not reach", flush=True)
        content["relations"] = {"added": ADDED, "ways": measure_relations(chosen.rounds)}
    store(chosen.results / "modes.json", content)


def store(path: Path, content: dict[str, Any]) -> None:
    """Writes what was measured. The rest of the file stays if its options are the same."""
    stored = read_json(path)
    if stored.get("options") != content["options"]:
        stored = {}
    series = merged(stored.get("series", []), content["series"], lambda one: (one["work"], one["threads"]))
    rates = merged(stored.get("limits", []), content["limits"], lambda one: str(one["threads"]))
    result = {
        **stored,
        **content,
        "graphs": merged_graphs(stored.get("graphs", []), content["graphs"]),
        "series": sorted(series, key=lambda one: (one["threads"], list(ROWS).index(one["work"]))),
        "limits": sorted(rates, key=lambda one: int(one["threads"])),
    }
    write_json(path, result)


def graphs(options: Options) -> list[dict[str, Any]]:
    """Returns what the result file says about the graphs."""
    found = []
    if options.typed_graph:
        found.append(mag.TypedFolder.open(options.typed_graph).describe())
    if options.graph:
        found.append(GraphFolder.open(options.graph).describe())
    return found


if __name__ == "__main__":
    main()
