"""Epochs of SAGE and their bytes on a slow network: historical embeddings against the exact mode.

Four ranks are hosts in network namespaces (needs root; see benchmark/ranks), one thread each, with
a partition by ldg: historical embeddings at the settings of DistGNN-MB's section 4.4, minibatches
one by one (B = 1), all of an epoch together (B = all), hybrid partitioning (B = 1 and all); and
DistDGL with random owners where `--peer dgl=...` names an environment that has it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmark.historical.measure import PAPER
from benchmark.ranks.peer import DistDglWorkload
from benchmark.ranks.workload import RankWorkload, add_workload_options
from benchmark.support import namespaces
from benchmark.support.cli import add_peer_option, write_json
from benchmark.support.machine import describe
from benchmark.support.world import LOOPBACK, World

WORKER = "benchmark.historical.worker"
RANKS, EPOCHS = 4, 2
POLICY = "ldg"
SETTINGS = {"lines": PAPER["cache_lines"], **{name: PAPER[name] for name in ("life_span", "push", "delay")}}
#: The jobs by the names of the settings, and their options.
JOBS: dict[str, tuple[str, dict[str, Any]]] = {
    "historical": ("historical", {"historical": SETTINGS}),
    "B = 1": ("training", {"macrobatch": 1}),
    "B = all": ("training", {"macrobatch": 0}),
    "hybrid, B = 1": ("training", {"macrobatch": 1, "hybrid": True}),
    "hybrid, B = all": ("training", {"macrobatch": 0, "hybrid": True}),
}


def measure(bench: RankWorkload, network: str) -> list[dict[str, Any]]:
    """Trains with every setting, starting with another one in every round."""
    found, names = [], list(JOBS)
    partition = bench.partition(RANKS, POLICY)
    for number in range(bench.rounds):
        turn = number % len(names)
        with World(RANKS, network, worker=WORKER).standing() as world:
            for name in names[turn:] + names[:turn]:
                job, options = JOBS[name]
                of_ranks = bench.job(world, job, partition=partition, epochs=EPOCHS, **options)
                found.append({"round": number, "setting": name, "of_ranks": of_ranks})
                print(f"  {name}: {max(one['wall'] for one in of_ranks):.2f} s", flush=True)
        if bench.dgl:
            found.append({"round": number, "setting": "DistDGL", "of_ranks": _dist_dgl(bench, network)})
    return found


def _dist_dgl(bench: RankWorkload, network: str) -> list[dict[str, Any]]:
    rate = namespaces.UNLIMITED if network == LOOPBACK else network
    of_ranks = DistDglWorkload(bench, RANKS).run("training", rate)
    print(f"  DistDGL: {max(one['wall'] for one in of_ranks):.2f} s", flush=True)
    return of_ranks


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, then stores the JSON file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_workload_options(parser.add_argument)
    add_peer_option(parser)
    options = parser.parse_args(arguments)
    bench = replace(RankWorkload.parse(options), dgl=dict(options.peer).get("dgl", ""))
    part = {
        "series": measure(bench, options.network),
        "network": options.network,
        "settings": SETTINGS,
        "policy": POLICY,
        "rounds": bench.rounds,
        "when": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }
    graph = bench.graph.describe()
    content = {"benchmark": "historical", "graph": graph, "parts": {"epochs": part}, "machine": describe()}
    write_json(options.results / f"historical-{graph['name']}.json", json.loads(json.dumps(content)))


if __name__ == "__main__":
    main()
