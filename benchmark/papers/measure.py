"""The settings of the publications that no other benchmark runs, at the scale of this machine.

Ranks are hosts in network namespaces (needs root; see benchmark/ranks). One thread per rank. Parts:

    p3          2 layers of 32 columns, fanout 25, 10, batch 1,000 (BatchGNN, table 2)
    distdglv2   3 layers of 256 columns, fanout 15, 10, 5, batch 1,000 (BatchGNN, table 3)
    hybrid      minibatches one by one, topology in parts or on every rank (FastSample, figure 6)
    partitions  rows fetched and epochs by partition (the ablation of DistDGL)

`python -m benchmark report` writes docs/papers.md from this file's results and those of the other
benchmarks.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from benchmark.ranks.workload import RankWorkload, add_workload_options
from benchmark.support.cli import write_json
from benchmark.support.machine import describe
from benchmark.support.world import World

WORKER = "benchmark.papers.worker"
RANKS = 4
#: Macrobatch sizes by their names; 0 is all minibatches of an epoch.
SIZES = {"B = 1": 1, "B = all": 0}

Entry = dict[str, Any]


def p3(bench: RankWorkload, network: str) -> list[Entry]:
    """Trains with the settings of P3."""
    return _epochs(replace(bench, fanouts=[25, 10], hidden=32, batch_size=1000), network)


def distdglv2(bench: RankWorkload, network: str) -> list[Entry]:
    """Trains with the settings of DistDGLv2."""
    return _epochs(replace(bench, fanouts=[15, 10, 5], hidden=256, batch_size=1000), network)


def _epochs(bench: RankWorkload, network: str) -> list[Entry]:
    found = []
    for number in range(bench.rounds):
        with World(RANKS, network, worker=WORKER).standing() as world:
            for setting, size in SIZES.items():
                of_ranks = bench.job(world, "epoch", macrobatch=size, epochs=2)
                found.append(_entry(number, setting, of_ranks))
    return found


def hybrid(bench: RankWorkload, network: str) -> list[Entry]:
    """Prepares and trains an epoch with the topology in parts and on every rank."""
    found = []
    for number in range(bench.rounds):
        with World(RANKS, network, worker=WORKER).standing() as world:
            for setting, whole in (("vanilla", False), ("hybrid", True)):
                prepared = bench.job(world, "preparation", macrobatches=[1], hybrid=whole)
                alone = [one[0] for one in prepared]
                found.append(_entry(number, f"{setting}, sampling and features", alone))
                trained = bench.job(world, "epoch", macrobatch=1, hybrid=whole, epochs=2)
                found.append(_entry(number, f"{setting}, training", trained))
    return found


def partitions(bench: RankWorkload, network: str) -> list[Entry]:
    """Trains with minibatches one by one, on partitions of several policies."""
    found = []
    for policy in ("random", "ldg", "multilevel"):
        bench.partition(RANKS, policy)
    for number in range(bench.rounds):
        with World(RANKS, network, worker=WORKER).standing() as world:
            for policy in ("random", "ldg", "multilevel"):
                options = {"partition": bench.partition(RANKS, policy), "macrobatch": 1, "epochs": 2}
                found.append(_entry(number, policy, bench.job(world, "epoch", **options)))
    return found


def _entry(number: int, setting: str, of_ranks: list[Any]) -> Entry:
    print(f"  {setting}: {max(one['wall'] for one in of_ranks):.2f} s", flush=True)
    return {"round": number, "setting": setting, "of_ranks": of_ranks}


MEASURED: dict[str, Callable[[RankWorkload, str], list[Entry]]] = {
    one.__name__: one for one in (p3, distdglv2, hybrid, partitions)
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures the parts; keeps the results of parts that are not measured again."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_workload_options(parser.add_argument)
    busy = "the machine does other work: counts are shown, seconds are not"
    parser.add_argument("--busy", action="store_true", help=busy)
    parser.add_argument("--parts", nargs="+", choices=list(MEASURED), default=list(MEASURED))
    options = parser.parse_args(arguments)
    bench = RankWorkload.parse(options)
    path = options.results / "papers.json"
    content = json.loads(path.read_text()) if path.is_file() else {"parts": {}}
    for part in options.parts:
        print(part, flush=True)
        content["parts"][part] = {
            "series": [{**one, "busy": options.busy} for one in MEASURED[part](bench, options.network)],
            "network": options.network,
            "graph": bench.graph.describe(),
            "rounds": bench.rounds,
            "when": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        }
        content |= {"benchmark": "papers", "machine": describe()}
        write_json(path, content)


if __name__ == "__main__":
    main()
