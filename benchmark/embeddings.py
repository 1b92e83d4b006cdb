"""Learned embeddings over ranks, against torch's modules under DistributedDataParallel, and against
DistDGL's.

It times the embedding part of a training step: reading the rows of a minibatch's nodes, and the
update by their gradients. The minibatches are those of GraphSAGE over ranks, sampled in advance;
all sides work on the same nodes.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from benchmark.support.cli import add_peer_option, new_parser, stamped, write_json
from benchmark.support.dist_dgl import DistDgl
from benchmark.support.ranks import Answer, Job
from benchmark.support.tables import Result, markdown, typical
from benchmark.support.world import LOOPBACK, World
from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import load_dataset
from pyg_batchgnn.embed import Embedding, EmbeddingOptimizer, SparseAdam
from pyg_batchgnn.partition import partition
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore

#: Makes one step of a side, given its number.
MakeStep = Callable[[int], None]
LIMIT = 3000.0
NAMES = {
    "ours": "`Embedding` with `SparseAdam`",
    "sparse": "`nn.Embedding(sparse=True)` with `SparseAdam`, DistributedDataParallel",
    "dense": "`nn.Embedding` with `Adam`, DistributedDataParallel",
    "dgl": "`DistEmbedding` with `SparseAdam` of DistDGL, random owners",
}


# What a rank does


class Ours:
    """Tables that are spread over ranks."""

    def __init__(self, data: Any, columns: int, steps: int, loading: dict[str, Any]) -> None:
        self.embedding = Embedding(data, columns)
        self.loader = MacrobatchNeighborLoader(data, embedding=self.embedding, **loading)
        self.optimizer = EmbeddingOptimizer(self.embedding, SparseAdam(lr=0.01))
        self.batches = [batch for _, batch in zip(range(steps), self.loader, strict=False)]

    def step(self, number: int, gradient: Tensor) -> None:
        """Reads rows, takes their gradient and starts the update."""
        rows = self.embedding(self.batches[number])["node"]
        rows.backward(gradient)
        self.optimizer.step()
        if number + 1 == len(self.batches):
            self.embedding.synchronize()


def torchs_step(
    nodes: list[Tensor], gradients: list[Tensor], num_nodes: int, columns: int, sparse: bool
) -> MakeStep:
    """Returns a step of torch's module, of which every rank holds all rows, under
    DistributedDataParallel."""
    module = nn.Embedding(num_nodes, columns, sparse=sparse)
    model = DistributedDataParallel(module, gradient_as_bucket_view=True)
    rule = torch.optim.SparseAdam if sparse else torch.optim.Adam
    optimizer: torch.optim.Optimizer = rule(module.parameters(), lr=0.01)

    def step(number: int) -> None:
        optimizer.zero_grad()
        model(nodes[number]).backward(gradients[number])
        optimizer.step()

    return step


def steps(comm: Communicator, options: Answer) -> Answer:
    """Measures this package's side and one of torch's, ``options["side"]``, in turns."""
    torch.set_num_threads(options["threads"])
    columns = options["columns"]
    with Communicator.create("graph") as graph:
        dataset = load_dataset(options["dataset"]).without_attributes()
        part = partition(dataset, options["policy"], comm=graph, seed=0)
        data = DistFeatureStore(part, graph), DistGraphStore(part, graph)
        loading = {
            "num_neighbors": options["fanouts"],
            "input_nodes": "train",
            "batch_size": options["batch_size"],
            "shuffle": True,
            "seed": 0,
            "export": "native",
            "attributes": [],
            "macrobatch_size": options["steps"],
        }
        ours = Ours(data, columns, options["steps"], loading)
        nodes = [batch.node for batch in ours.batches]
        np.savez(options["nodes"].format(rank=comm.rank), *(node.numpy() for node in nodes))
        gradient = torch.rand(max(map(len, nodes)), columns)
        gradients = [gradient[: len(node)] for node in nodes]
        sides: dict[str, MakeStep] = {"ours": lambda number: ours.step(number, gradients[number])}
        if name := options["side"]:
            sides[name] = torchs_step(nodes, gradients, dataset.num_nodes, columns, name == "sparse")
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        for turn in range(1 + options["rounds"]):
            for name, step in sides.items():
                taken = timed(step, comm, len(nodes))
                if turn:  # the first is not measured
                    seconds[name].append(taken)
        counts = {"nodes": statistics.mean(map(len, nodes))}
        return {"seconds": seconds, "counts": counts, "num_nodes": dataset.num_nodes}


def timed(step: MakeStep, comm: Communicator, steps: int) -> float:
    """Returns the seconds per step of the slowest rank."""
    comm.barrier()
    begun = time.perf_counter()
    for number in range(steps):
        step(number)
    slowest: float = comm.max(time.perf_counter() - begun)
    return slowest / steps


JOBS: dict[str, Job] = {"steps": steps}


# Measuring


def run_sides(options: dict[str, Any], python: str, network: str) -> dict[str, Any]:
    """Returns what the first rank found, each of torch's sides in processes of its own, with the
    seconds of DistDGL where it takes part.

    ``python``: of an environment that has DGL; empty where DistDGL takes no part. ``network``: the
    rate of the links between hosts, or loopback.
    """
    world = World(options["ranks"], network, LIMIT, "benchmark.embeddings", options["threads"])
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
    """Returns DistDGL's seconds per step of each round, the slowest rank's."""
    peer = DistDgl(python, options["ranks"], options["threads"])
    parts = peer.parts(f"ring-{num_nodes}", {"nodes": num_nodes})
    of_ranks = peer.run("embedding", parts, options)
    return [max(of_round) for of_round in zip(*(one["seconds"] for one in of_ranks), strict=True)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures all sides in turns and writes ``embeddings.json``."""
    parser = new_parser(__doc__)
    add = parser.add_argument
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
    add_peer_option(parser)
    parsed = parser.parse_args(arguments)
    options = {name: value for name, value in vars(parsed).items() if name not in ("results", "peer")}
    python = dict(parsed.peer).get("dgl", "")
    if python and parsed.network == LOOPBACK:
        raise SystemExit("DistDGL needs hosts of its own: --network unlimited, or a rate")
    found = run_sides(options, python, parsed.network)
    write_json(parsed.results / "embeddings.json", stamped("embeddings", workload=options, **found))


def table(result: Result) -> str:
    """Milliseconds per step of each side, and how they compare with ours."""
    options, nodes = result["workload"], result["counts"]["nodes"]
    seconds = {name: typical(times) for name, times in result["seconds"].items()}
    lines = [
        f"`{Path(options['dataset']).name}`, {options['ranks']} ranks of {options['threads']} threads, "
        f"owners by {options['policy']},",
        f"{options['network']} links, {options['columns']} columns,",
        f"batch {options['batch_size']:,}, fanout {', '.join(map(str, options['fanouts']))}: a rank's "
        f"minibatch reads {nodes:,.0f} rows.",
    ]
    rows = [
        [label, f"{seconds[name] * 1e3:,.1f}", f"{seconds[name] / seconds['ours']:.2f}x"]
        for name, label in NAMES.items()
        if name in seconds
    ]
    text = "\n".join(lines)
    return f"{text}\n\n{markdown(['the embedding part of a step', 'ms', 'of ours'], rows)}"
