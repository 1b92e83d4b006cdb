"""Learned embeddings over ranks, against torch's modules under DistributedDataParallel, and against
DistDGL's.

It times the embedding part of a training step: reading the rows of a minibatch's nodes, and the
update by their gradients. The minibatches are those of GraphSAGE, sampled in advance. Then it
trains with rows that may be stale, in one process.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark.embeddings.staleness import accuracies
from benchmark.support.cli import RESULTS, add_peer_option, write_json
from benchmark.support.dist_dgl import DistDgl
from benchmark.support.machine import describe
from benchmark.support.world import LOOPBACK, World

WORKER = "benchmark.embeddings.worker"
LIMIT = 3000.0


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__)
    add = result.add_argument
    add("--dataset", default="generated:nodes=1000000,seed=0", help="what load_dataset takes")
    add("--columns", type=int, default=100, help="columns of the table")
    add("--ranks", type=int, default=2, help="ranks, all on this machine")
    add("--threads", type=int, default=1, help="threads of each rank")
    add("--batch-size", type=int, default=1024, help="seed nodes of a rank's minibatch")
    add("--fanouts", type=int, nargs="+", default=[15, 10, 5], help="neighbours by hop")
    add("--steps", type=int, default=10, help="steps of a round")
    add("--rounds", type=int, default=9, help="rounds that count")
    add("--policy", default="ldg", help="partitioning policy")
    add("--sides", nargs="*", default=["sparse", "dense"], help="torch's sides: sparse, dense")
    add("--network", default=LOOPBACK, help="rate of the links between hosts, or unlimited; needs root")
    add_peer_option(result)
    add("--stale-steps", type=int, nargs="*", default=[0, 1, 2, 4, 8], help="how stale rows may be")
    add("--seeds", type=int, default=5, help="seeds of the runs with stale rows")
    add("--epochs", type=int, default=5, help="epochs of the runs with stale rows")
    add("--results", type=Path, default=RESULTS, help="folder for the JSON file")
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures all sides in turns and writes ``embeddings.json``."""
    parsed = parser().parse_args(arguments)
    apart = ("results", "stale_steps", "seeds", "epochs", "peer")
    options = {name: value for name, value in vars(parsed).items() if name not in apart}
    python = dict(parsed.peer).get("dgl", "")
    if python and parsed.network == LOOPBACK:
        raise SystemExit("DistDGL needs hosts of its own: --network unlimited, or a rate")
    found = run_sides(options, python, parsed.network)
    if parsed.stale_steps:
        found["staleness"] = accuracies(parsed.stale_steps, parsed.seeds, parsed.epochs)
    when = time.strftime("%Y-%m-%d")
    result = {
        "benchmark": "embeddings",
        "machine": describe(),
        "when": when,
        "workload": options,
        **found,
    }
    write_json(parsed.results / "embeddings.json", result)


def run_sides(options: dict[str, Any], python: str, network: str) -> dict[str, Any]:
    """Returns what the first rank found, each of torch's sides in processes of its own, with the
    seconds of DistDGL where it takes part.

    Args:
        options: the workload.
        python: of an environment that has DGL; empty where DistDGL takes no part.
        network: the rate of the links between hosts, or loopback.
    """
    world = World(options["ranks"], network, LIMIT, WORKER, options["threads"])
    with tempfile.TemporaryDirectory() as folder, world.standing():
        options = {**options, "nodes": str(Path(folder) / "{rank}.npz")}
        # One of torch's sides at a time: each rank holds all rows, gradients and moments.
        runs = [world.run("steps", {**options, "side": side})[0] for side in options["sides"] or [""]]
        found: dict[str, Any] = {**runs[0], "seconds": {}}
        for run in runs:
            for name, seconds in run["seconds"].items():
                found["seconds"].setdefault(name, []).extend(seconds)
        if python:
            found["seconds"]["dgl"] = dist_dgl(options, python, found["num_nodes"])
        return found


def dist_dgl(options: dict[str, Any], python: str, num_nodes: int) -> list[float]:
    """Returns DistDGL's seconds per step of each round, the slowest rank's.

    Its rows are those of a graph with the same nodes and other owners, at random.
    """
    peer = DistDgl(python, options["ranks"], options["threads"])
    parts = peer.parts(f"ring-{num_nodes}", {"nodes": num_nodes})
    of_ranks = peer.run("embedding", parts, options)
    return [max(of_round) for of_round in zip(*(one["seconds"] for one in of_ranks), strict=True)]
