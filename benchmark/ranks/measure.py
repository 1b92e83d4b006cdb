"""Many ranks: feature rows against the macrobatch size, preparation over a slow network, epochs,
CPU seconds.

Ranks are processes of this machine with one thread each, on loopback or, where `--network` names a
rate, each in a network namespace of its own (needs root; see namespaces.py). Parts:

    rows          feature rows that an epoch fetches at B = 1, B = all and with hybrid partitioning
    network       seconds to prepare an epoch's minibatches at B = 1, 8, 32, all, over the network
    training      an epoch of SAGE on 2 ranks, at B = 1, 8 and all, with and without prefetch
    scaling       CPU seconds of an epoch on 1, 2 and 4 ranks
    partitioning  seconds, memory, edge cut and balance by policy
    dist_dgl      an epoch of SAGE on 2 hosts against DistDGL (needs --peer dgl=... and root)
    dist_dgl_preparation  preparing an epoch's minibatches against DistDGL, likewise

The graph may have several node types. SAGE then has a convolution per relation.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmark.ranks.peer import dist_dgl, dist_dgl_preparation
from benchmark.ranks.workload import RankWorkload, add_workload_options, as_dataset
from benchmark.support.cli import add_peer_option, write_json
from benchmark.support.machine import describe
from benchmark.support.world import LOOPBACK, World

PARTS = ("rows", "network", "training", "scaling", "partitioning")
PEER_PARTS = ("dist_dgl", "dist_dgl_preparation")
POLICIES = ("random", "contiguous", "ldg", "fennel")


def rows(bench: RankWorkload, network: str) -> list[dict[str, Any]]:  # noqa: ARG001
    """Measures what BatchGNN's table 5 has."""
    found = []
    for ranks in (2, 4):
        for hybrid, sizes in ((False, [1, 0]), (True, [1])):
            options = {"macrobatches": sizes, "hybrid": hybrid, "count_distinct": not hybrid}
            with World(ranks).standing() as world:
                answers = bench.job(world, "preparation", **options)
            for at, size in enumerate(sizes):
                of_ranks = [answer[at] for answer in answers]
                found.append({"ranks": ranks, "hybrid": hybrid, "macrobatch": size, "of_ranks": of_ranks})
                print(f"  {ranks} ranks, B={size or 'all'}{', hybrid' if hybrid else ''}:", end=" ")
                print([one["rows_fetched"] for one in of_ranks], flush=True)
    return found


def network(bench: RankWorkload, network: str) -> list[dict[str, Any]]:
    """Measures preparation by macrobatch size, starting with another size in every round."""
    found: list[dict[str, Any]] = []
    sizes = [1, 8, 32, 0]
    bench.partition(4)
    with World(4, network).standing() as world:
        for number in range(bench.rounds):
            turn = number % len(sizes)
            for size in (
                sizes[turn:] + sizes[:turn]
            ):  # processes of its own each: memory of another would be kept
                of_ranks = [answer[0] for answer in bench.job(world, "preparation", macrobatches=[size])]
                found.append({"round": number, "macrobatch": of_ranks[0]["macrobatch"], "of_ranks": of_ranks})
                wall = max(one["wall"] for one in of_ranks)
                print(f"  B={of_ranks[0]['macrobatch'] or 'all'}: {wall:.2f} s", flush=True)
    return found


def training(bench: RankWorkload, network: str) -> list[dict[str, Any]]:
    """Epochs on two ranks."""
    found = []
    for number in range(bench.rounds):
        for size, ahead in ((1, 0), (8, 0), (8, 1), (0, 0)):
            with World(2, network).standing() as world:
                of_ranks = bench.job(world, "training", macrobatch=size, prefetch=ahead)
            setting = f"B = {size or 'all'}{', the next one prepared beside' if ahead else ''}"
            found.append({"round": number, "setting": setting, "of_ranks": of_ranks})
            print(f"  {setting}: {max(one['wall'] for one in of_ranks):.2f} s", flush=True)
    return found


def scaling(bench: RankWorkload, network: str) -> list[dict[str, Any]]:  # noqa: ARG001
    """Measures the same epoch on more ranks, with the same seeds per step."""
    found = []
    for number in range(bench.rounds):
        for ranks in (1, 2, 4):
            with World(ranks).standing() as world:
                options = {"macrobatch": 8, "batch_size": bench.batch_size}
                of_ranks = bench.job(world, "training", **options)
            found.append({"round": number, "ranks": ranks, "of_ranks": of_ranks})
            cpu = sum(one["cpu"] for one in of_ranks)
            print(f"  {ranks} ranks: {cpu:.1f} CPU s", flush=True)
    return found


def partitioning(bench: RankWorkload, network: str) -> list[dict[str, Any]]:  # noqa: ARG001
    """Every policy at 1, 2 and 4 ranks."""
    found = []
    dataset = str(as_dataset(bench.graph))
    for ranks in (1, 2, 4):
        for policy in POLICIES if ranks == 4 else POLICIES[:1]:
            with World(ranks).standing() as world:
                of_ranks = world.run("partitioning", {"dataset": dataset, "policy": policy})
            found.append({"ranks": ranks, "policy": policy, "of_ranks": of_ranks})
            print(f"  {ranks} ranks, {policy}: {max(one['wall'] for one in of_ranks):.1f} s", flush=True)
    return found


MEASURED = {
    one.__name__: one
    for one in (rows, network, training, scaling, partitioning, dist_dgl, dist_dgl_preparation)
}


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = result.add_argument
    add_workload_options(add)
    add(
        "--parts",
        nargs="+",
        choices=[*PARTS, *PEER_PARTS],
        default=PARTS,
        help="what to measure (default: all but those against DistDGL)",
    )
    add_peer_option(result)
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures the parts; keeps the results of parts that are not measured again."""
    options = parser().parse_args(arguments)
    bench = replace(RankWorkload.parse(options), dgl=dict(options.peer).get("dgl", ""))
    graph = bench.graph
    for part in PEER_PARTS:
        if part in options.parts and not bench.dgl:
            raise SystemExit(f"{part} needs an environment that has DGL: --peer dgl=/envs/dgl/bin/python")
    path = options.results / f"ranks-{graph.describe()['name']}.json"
    content = json.loads(path.read_text()) if path.is_file() else {"parts": {}}
    for part in options.parts:
        print(f"{part}", flush=True)
        series = MEASURED[part](bench, options.network)
        content["parts"][part] = {
            "series": series,
            "network": options.network if part in ("network", "training") else LOOPBACK,
            "options": {
                "fanouts": bench.fanouts,
                "batch_size": bench.batch_size,
                "seeds": bench.seeds,
                "rounds": bench.rounds,
            },
            "when": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        }
        content |= {"benchmark": "ranks", "graph": graph.describe(), "machine": describe()}
        write_json(path, content)


if __name__ == "__main__":
    main()
