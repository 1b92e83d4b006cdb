"""Rows, bytes and seconds of an epoch's preparation on parts of every policy.

The training nodes are a tenth of all: spread evenly, or nodes of the lowest classes, which lie
together. With `--network 1gbit` every rank is a host of its own (needs root). Rows and bytes are
the same on every network. METIS takes part where its library is installed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from benchmark.growth.measure import graph_folder
from benchmark.support.cli import RESULTS, write_json
from benchmark.support.machine import describe
from benchmark.support.world import LOOPBACK, World
from pyg_batchgnn.partition import has_metis

WORKER = "benchmark.partition_traffic.worker"
NODES = {"nodes": 1.05}
SEVERAL = {"nodes": 1.05, "edges": 1.05, "train": 1.05}
#: Name, policy and what is balanced.
SIDES = (
    ("random", "random", SEVERAL),
    ("ldg", "ldg", SEVERAL),
    ("METIS, nodes", "metis", NODES),
    ("METIS, several", "metis", SEVERAL),
    ("multilevel, nodes", "multilevel", NODES),
    ("multilevel, several", "multilevel", SEVERAL),
)


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = result.add_argument
    add("--graph", default="100000", help="number of nodes of a generated graph, or a data set")
    add("--draws", type=int, default=3, help="generated graphs, each with another seed; figures are means")
    add("--ranks", type=int, default=4)
    add("--fanouts", type=int, nargs="+", default=[10, 5])
    add("--batch-size", type=int, default=256, help="seed nodes per minibatch")
    add("--network", default=LOOPBACK, help="rate of the links between hosts, as tc writes it")
    busy = "the machine does other work: rows and bytes are shown, seconds are not"
    add("--busy", action="store_true", help=busy)
    add("--results", type=Path, default=RESULTS, help="folder for the JSON file")
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures every policy on both training sets of every graph, in the same processes."""
    options = parser().parse_args(arguments)
    sides = [side for side in SIDES if side[1] != "metis" or has_metis()]
    cases = [(unbalanced, *side) for unbalanced in (False, True) for side in sides]
    given = {
        "cases": [
            {"unbalanced": unbalanced, "policy": policy, "balance": balance}
            for unbalanced, _, policy, balance in cases
        ],
        **{"schedules": ["local", "balanced"], "macrobatches": [1, 0]},
        **{"fanouts": options.fanouts, "batch_size": options.batch_size},
    }
    datasets = [options.graph]
    if options.graph.isdigit():
        datasets = [str(graph_folder(int(options.graph), seed)) for seed in range(options.draws)]
    with World(options.ranks, options.network, worker=WORKER).standing() as world:
        draws = [zip(*world.run("traffic", {"dataset": name, **given}), strict=True) for name in datasets]
    series = [
        {"side": name, "unbalanced": unbalanced, "draws": of_draws}
        for (unbalanced, name, _, _), of_draws in zip(cases, zip(*draws, strict=True), strict=True)
    ]
    content = {
        "benchmark": "partition_traffic",
        "partition_traffic": series,
        "setting": {
            **{"graph": options.graph, "draws": len(datasets)},
            **{"ranks": options.ranks, "network": options.network},
            **{"fanouts": options.fanouts, "batch_size": options.batch_size, "busy": options.busy},
        },
        "machine": describe(),
        "when": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }
    write_json(options.results / "partition_traffic.json", content)


if __name__ == "__main__":
    main()
