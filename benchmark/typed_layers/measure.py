"""Steps of typed SAGE and GAT on a graph like ogbn-mag, and of SAGE on links of one like products.

Every node type has 128 features. Ours against PyG's `to_hetero` with trimming, PyG's `HeteroConv`
on slices made by hand, and DGL's `HeteroGraphConv` on blocks; links against PyG's whole
minibatches. Choose rows with --rows, peers with --against and smaller graphs with --scale. What is
not asked for stays as it is stored, if its options are the same.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmark.modes.measure import graphs, plain_graph, typed_graph
from benchmark.support.cli import RESULTS, Peers, add_peer_option, read_json, write_json
from benchmark.support.harness import Contestant, Players
from benchmark.support.jobs import Options
from benchmark.support.machine import describe
from benchmark.support.settings import MallocSetting, ProcessSetting
from benchmark.support.stored import merged, merged_graphs
from benchmark.typed_layers.limits import limits
from benchmark.typed_layers.rows import OURS, PEERS, ROWS, Row, Table

#: Slow contestants do this many minibatches of a round.
FEW = 1


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    result = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add, allocators = result.add_argument, [setting.value for setting in MallocSetting]
    add("--rows", nargs="+", choices=list(ROWS), default=list(ROWS), metavar="ROW", help=", ".join(ROWS))
    add("--against", nargs="+", choices=PEERS, default=PEERS, metavar="PEER", help=", ".join(PEERS))
    add("--scale", type=float, default=1.0, help="size of generated graphs, as a share of the originals'")
    add("--graph", type=Path, help="folder with colptr.npy, row.npy, x.npy, y.npy, train_idx.npy")
    add("--typed-graph", type=Path, help="folder as benchmark/support/mag.py describes it")
    add("--threads", type=int, nargs="+", default=[1, 2], help="thread counts, one after another")
    add("--malloc", choices=allocators, nargs="+", default=["kept"], help="allocator settings to measure")
    add("--rounds", type=int, default=9, help="rounds measured, after one unmeasured")
    add("--batches", type=int, default=2, help="minibatches of ours per round; peers do the first")
    add("--batch-size", type=int, default=1024, help="seed nodes or links per minibatch")
    add("--hidden", type=int, default=256, help="width of hidden layers")
    add("--seed", type=int, default=0, help="seed that chooses the seed nodes")
    add("--no-limits", action="store_true", help="leave out the rates that bound a step")
    add("--results", type=Path, default=RESULTS, help="folder for the JSON file")
    add_peer_option(result)
    return result


def chosen_options(chosen: argparse.Namespace, rows: Sequence[Row]) -> Options:
    """Returns the workload, and generates the graphs that rows need."""
    typed = typed_graph(chosen.typed_graph, chosen.scale) if any(row.typed for row in rows) else ""
    plain = "" if all(row.typed for row in rows) else plain_graph(chosen.graph, chosen.scale)
    return Options(
        graph=plain,
        typed_graph=typed,
        batches=chosen.batches,
        batch_size=chosen.batch_size,
        hidden=chosen.hidden,
        seed=chosen.seed,
    )


def tables(rows: Sequence[Row], against: Sequence[str]) -> list[tuple[Table, list[Row]]]:
    """Returns the tables of ours and some peers, each with the rows that it is measured at."""
    found: list[tuple[Table, list[Row]]] = []
    for row in rows:
        for table in (one for one in row.tables if set(one) & set(against)):
            known = [some for one, some in found if one is table]
            if known:
                known[0].append(row)
            else:
                found.append((table, [row]))
    return found


def contestants(table: Table, peers: Peers) -> list[Contestant]:
    """Returns the sides that take turns."""
    found = []
    for name, (side, job) in table.items():
        python = peers.python(side.removeprefix("typed_"))
        found.append(Contestant(name, side, job, python, 0 if name == OURS else FEW))
    return found


def series(
    measured: list[tuple[Table, list[Row]]],
    options: Options,
    setting: ProcessSetting,
    peers: Peers,
    rounds: int,
) -> Iterator[dict[str, Any]]:
    """Yields the series of each table and row; rows of the same table share its processes."""
    for table, some in measured:
        with Players(contestants(table, peers), setting) as players:
            for row in some:
                print(f"{row.name}, {setting.threads} thread(s), malloc {setting.malloc.value}", flush=True)
                work = replace(options, model=row.model, fanouts=row.fanouts)
                yield {**players.series(work, rounds).as_dict(), "row": row.name}


def store(path: Path, content: dict[str, Any], found: dict[str, Any]) -> None:
    """Writes a series among the stored ones, in the place of that of the same sides."""
    stored = read_json(path)
    if stored.get("options") != content["options"]:
        stored = {}
    series = merged(stored.get("series", []), [found], _case)
    old, new = stored.get("limits", {}), content["limits"]
    result = {
        **content,
        "graphs": merged_graphs(stored.get("graphs", []), content["graphs"]),
        "limits": {key: {**old.get(key, {}), **new.get(key, {})} for key in {**old, **new}},
        "series": sorted(series, key=lambda one: (one["threads"], list(ROWS).index(one["row"]))),
    }
    write_json(path, result)


def _case(one: dict[str, Any]) -> Hashable:
    """Returns what a series is of: row, setting and peers."""
    peers = frozenset({*one["contestants"], *one["absent"]} - {OURS})
    return one["row"], one["threads"], one["malloc"], peers


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures the chosen rows; stores the JSON file after each of them."""
    chosen = parser().parse_args(arguments)
    rows = [ROWS[name] for name in chosen.rows]
    options, peers = chosen_options(chosen, rows), Peers(dict(chosen.peer))
    content: dict[str, Any] = {
        "benchmark": "typed_layers",
        "graphs": graphs(options),
        "options": {
            **{key: getattr(options, key) for key in ("batch_size", "batches", "hidden")},
            **{"rounds": chosen.rounds, "scale": chosen.scale},
            **{key: str(getattr(chosen, key) or "generated") for key in ("graph", "typed_graph")},
        },
        "machine": describe(),
        "when": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "limits": {} if chosen.no_limits else limits(rows, options, chosen.threads),
    }
    for malloc in chosen.malloc:
        for threads in chosen.threads:
            setting = ProcessSetting(threads, MallocSetting(malloc))
            measured = tables(rows, chosen.against)
            for found in series(measured, options, setting, peers, chosen.rounds):
                store(chosen.results / "typed_layers.json", content, found)


if __name__ == "__main__":
    main()
