"""Test accuracy of GraphSAGE trained in several ways, over paired seeds on real graphs.

PyG's layers are trained on our minibatches, on a reference sampler's and on PyG's; native layers on
our minibatches, in float32 and in bfloat16. A pair shares initial weights and the order of the
training nodes, and where the sampler is the same, the neighbours. Evaluation uses all neighbours,
in the precision of training. A run that is stopped goes on where it was: every seed done is a line
in ``results/pieces/accuracy/TASK-SIDE.jsonl``, ignored where the task has changed.

Peers' interpreters load this file: it imports nothing of the package by itself.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from benchmark.networks.pyg import Pairs, Sliced
from benchmark.networks.recipe import DROPOUT, StepTrainer
from benchmark.support.cli import (
    Peers,
    add_line,
    add_peer_option,
    missing_seeds,
    new_parser,
    pieces_folder,
    read_json,
    seeds_done,
    write_datasets,
)
from benchmark.support.graphs import GraphFolder, dataset_folder
from benchmark.support.harness import ProcessSetting
from benchmark.support.start import in_process
from benchmark.support.tables import Result, markdown

SIDES = ("reference", "ours", "pyg", "native", "native-bfloat16")
#: What is compared: the first side's result minus the second's.
PAIRS = (("ours", "reference"), ("ours", "pyg"), ("native", "ours"), ("native-bfloat16", "native"))
PEERS = ("pyg",)


@dataclass(frozen=True)
class AccuracyTask:
    """The training that the sides of a comparison have in common; its name is the data set's."""

    epochs: int
    batch_size: int
    allowed_loss: float = 0.5  # the points by which the lower bound may lie below zero
    fanouts: tuple[int, ...] = (15, 10)
    hidden: int = 64
    features: int | None = 256
    model: str = "SAGE"  # a class of pyg_batchgnn.nn, on the native sides


TASKS = {
    "cora": AccuracyTask(epochs=40, batch_size=64, allowed_loss=1.0, fanouts=(15, 10, 5)),
    "amazon_photo": AccuracyTask(epochs=15, batch_size=512, fanouts=(15, 10, 5)),
    "coauthor_physics": AccuracyTask(epochs=6, batch_size=1024),
    "oewn": AccuracyTask(epochs=5, batch_size=1024),
}


def graph_of(name: str, task: AccuracyTask) -> GraphFolder:
    if task.features is None:
        return dataset_folder(name, name)
    return dataset_folder(f"{name}-{task.features}", name, feature_dim=task.features)


@dataclass(frozen=True, eq=False)
class ReferenceBatch:
    """A minibatch with the attributes of PyG's that the models read."""

    x: Tensor  # [N, F] float32, features of the nodes in order of discovery, seeds first
    y: Tensor  # [N] int64 labels
    edge_index: Tensor  # [2, E] int64 local ids, sources above destinations, in hop order
    num_sampled_nodes: list[int]  # seeds, then nodes discovered at each hop
    num_sampled_edges: list[int]  # edges of each hop
    batch_size: int  # number of seeds


class ReferenceSampler:
    """A neighbour sampler in NumPy with PyG's rules, which shares nothing with the package."""

    def __init__(
        self, graph: GraphFolder, train: Tensor, order: SeedOrder, fanouts: tuple[int, ...], seed: int
    ) -> None:
        self.graph, self.fanouts, self.train, self.order = graph, fanouts, train.numpy(), order
        self.colptr, self.row = graph.colptr.numpy(), graph.row.numpy()
        self.random = np.random.default_rng(seed)

    def __iter__(self) -> Iterator[ReferenceBatch]:
        """Yields the minibatches of an epoch, in the order that all sides have."""
        return (self.minibatch(self.train[positions]) for positions in self.order)

    def chosen_edges(self, nodes: np.ndarray, fanout: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the edges chosen for ``nodes``: (ascending position of the destination, edge)."""
        degree = self.colptr[nodes + 1] - self.colptr[nodes]
        owner = np.repeat(np.arange(len(nodes)), degree)
        first_of_owner = np.cumsum(degree) - degree
        rank = np.arange(len(owner)) - first_of_owner[owner]
        edge = self.colptr[nodes[owner]] + rank
        shuffled = np.lexsort((self.random.random(len(edge)), owner))  # by owner, then by random number
        return owner[rank < fanout], edge[shuffled][rank < fanout]

    def minibatch(self, seeds: np.ndarray) -> ReferenceBatch:
        """The minibatch of [S] distinct seed nodes."""
        local = np.full(self.graph.num_nodes, -1)
        local[seeds] = np.arange(len(seeds))
        nodes, frontier, expanded = [seeds], seeds, 0
        sources, destinations = [], []
        for fanout in self.fanouts:
            owner, edge = self.chosen_edges(frontier, fanout)
            source = self.row[edge]
            unseen = source[local[source] < 0]
            distinct, first = np.unique(unseen, return_index=True)
            new = distinct[np.argsort(first)]  # in order of first appearance
            local[new] = expanded + len(frontier) + np.arange(len(new))
            sources.append(local[source])
            destinations.append(expanded + owner)
            expanded += len(frontier)
            nodes.append(new)
            frontier = new
        node = torch.from_numpy(np.concatenate(nodes))
        edge_index = np.stack([np.concatenate(sources), np.concatenate(destinations)])
        return ReferenceBatch(
            x=self.graph.x[node],
            y=self.graph.y[node],
            edge_index=torch.from_numpy(edge_index),
            num_sampled_nodes=[len(some) for some in nodes],
            num_sampled_edges=[len(some) for some in sources],
            batch_size=len(seeds),
        )


#: The native layers on minibatches whose destinations share the words of sources, see `labor`.
LABOR = {"labor-hop": "hop", "labor-layers": "layers", "labor-epoch": "epoch"}
#: Those on rows of one byte, see `narrow`.
INT8 = "native-int8"
NATIVE = {
    "native-bfloat16": torch.bfloat16,
    **dict.fromkeys(("native", INT8, *LABOR), torch.float32),
}


class SeedOrder:
    """The seed nodes of the minibatches, the same on every side, shuffled by (seed, epoch)."""

    def __init__(self, count: int, batch_size: int, seed: int) -> None:
        self.count, self.batch_size, self.seed, self.epoch = count, batch_size, seed, 0

    def __iter__(self) -> Iterator[list[int]]:
        generator = torch.Generator().manual_seed(1_000_003 * self.seed + self.epoch)
        self.epoch += 1
        for positions in torch.randperm(self.count, generator=generator).split(self.batch_size):
            yield positions.tolist()

    def __len__(self) -> int:
        return -(-self.count // self.batch_size)


def _loading(task: AccuracyTask, train: Tensor, order: SeedOrder) -> dict[str, Any]:
    sampling = {"num_neighbors": list(task.fanouts), "is_sorted": True}
    return {**sampling, "input_nodes": train, "batch_sampler": order}


class PygSide:
    """PyG's layers on minibatches with PyG's attributes: of PyG, this package or the reference."""

    def __init__(self, graph: GraphFolder, task: AccuracyTask, sampler: str) -> None:
        self.graph, self.sampler = graph, sampler
        self.model: nn.Module = Sliced(
            "sage", graph.num_features, task.hidden, graph.num_classes, len(task.fanouts), Pairs
        )

    def minibatches(self, task: AccuracyTask, train: Tensor, order: SeedOrder, seed: int) -> Any:
        """An iterable of minibatches, one epoch an iteration."""
        graph = self.graph
        if self.sampler == "reference":
            return ReferenceSampler(graph, train, order, task.fanouts, seed)
        data = Data(x=graph.x, edge_index=graph.edge_index, y=graph.y)
        if self.sampler == "pyg":
            from torch_geometric.loader import NeighborLoader

            return NeighborLoader(data, **_loading(task, train, order))
        from pyg_batchgnn import MacrobatchNeighborLoader

        return MacrobatchNeighborLoader(data, seed=seed, threads=1, **_loading(task, train, order))

    def forward(self, batch: Any) -> tuple[Tensor, Tensor]:
        return self.model(batch), batch.y[: batch.batch_size]

    def everywhere(self) -> Tensor:
        assert isinstance(self.model, Sliced)
        return self.model.whole_graph(self.graph.x, self.graph.adjacency)


class NativeSide:
    """The native layers on native minibatches of features ``x`` [N, F], perhaps quantised."""

    def __init__(self, graph: GraphFolder, model: nn.Module, x: Any, labor: str | None = None) -> None:
        self.graph, self.model, self.x, self.labor = graph, model, x, labor

    def minibatches(self, task: AccuracyTask, train: Tensor, order: SeedOrder, seed: int) -> Any:
        """An iterable of minibatches, one epoch an iteration."""
        from pyg_batchgnn import MacrobatchNeighborLoader

        data = Data(x=self.x, edge_index=self.graph.edge_index, y=self.graph.y)
        sampling = {**_loading(task, train, order), "labor": self.labor}
        return MacrobatchNeighborLoader(data, seed=seed, threads=1, export="native", **sampling)

    def _autocast(self) -> torch.autocast:
        return torch.autocast("cpu", torch.bfloat16, enabled=self.x.dtype is torch.bfloat16)

    def forward(self, batch: Any) -> tuple[Tensor, Tensor]:
        with self._autocast():
            return self.model(batch), batch.attribute("y", batch.batch_size)

    def everywhere(self) -> Tensor:
        with self._autocast():
            return self.model(self.x, self.graph.edge_index)


Side = PygSide | NativeSide


def side_of(name: str, graph: GraphFolder, task: AccuracyTask, seed: int) -> Side:
    """Returns a side with the initial weights of a seed."""
    torch.manual_seed(seed)
    if name not in NATIVE:
        return PygSide(graph, task, name)
    from pyg_batchgnn import nn as native
    from pyg_batchgnn import quantize

    shape = (graph.num_features, task.hidden, len(task.fanouts), graph.num_classes)
    model = getattr(native, task.model)(*shape, dropout=DROPOUT)
    x = quantize(graph.x) if name == INT8 else graph.x.to(NATIVE[name])
    return NativeSide(graph, model, x, LABOR.get(name))


class Training:
    """The training of a task on one side."""

    def __init__(self, side: Side, task: AccuracyTask, seed: int) -> None:
        self._side, self._epochs, self._trainer = side, task.epochs, StepTrainer(side.model)
        train = side.graph.read("train_idx").long()
        order = SeedOrder(len(train), task.batch_size, seed)
        self._minibatches = side.minibatches(task, train, order, seed)
        self._rows = 0

    def record(self) -> dict[str, Any]:
        """Trains all epochs. Returns the accuracies after the one with the best validation, and the
        curve: validation, seconds since the start and rows of all minibatches, after each epoch."""
        begun, curve = time.perf_counter(), []
        for _ in range(self._epochs):
            curve.append((*self.epoch(), round(time.perf_counter() - begun, 3), self._rows))
        validation, tests, seconds, rows = zip(*curve, strict=True)
        best = max(validation)
        found = {"val": best, "test": tests[validation.index(best)], "seconds": seconds[-1]}
        return {**found, "curve": {"validation": validation, "seconds": seconds, "rows": rows}}

    def epoch(self) -> tuple[float, float]:
        """Trains an epoch; returns the validation and the test accuracy after it."""
        self._side.model.train()
        for batch in self._minibatches:
            self._trainer.step(*self._side.forward(batch))
            self._rows += batch.num_nodes
        self._side.model.eval()
        with torch.no_grad():
            right = self._side.everywhere().argmax(dim=1) == self._side.graph.y
        parts = (self._side.graph.read(f"{part}_idx").long() for part in ("val", "test"))
        validation, test = (float(right[part].float().mean()) for part in parts)
        return validation, test


def train(order: dict[str, Any]) -> None:
    """Trains seeds on one side; each is a line in a file."""
    torch.set_num_threads(1)
    task, graph = AccuracyTask(**order["task"]), GraphFolder.open(order["graph"])
    for seed in order["seeds"]:
        record = Training(side_of(order["side"], graph, task, seed), task, seed).record()
        add_line(Path(order["output"]), {"seed": seed, **record, "task": asdict(task)})


def train_missing(
    graph: GraphFolder, task: AccuracyTask, side: str, seeds: int, peers: Peers, output: Path
) -> str | None:
    """Trains what is missing under the side's interpreter; returns why a side is absent."""
    missing = missing_seeds(output, asdict(task), seeds)
    if not missing:
        return None
    order = {"task": asdict(task), "side": side, "seeds": missing, "output": str(output)}
    order["graph"] = str(graph.path)
    print(f"{output.stem}: {len(missing)} seeds to train", flush=True)
    try:
        in_process(
            *("benchmark.accuracy", "train", order),
            python=peers.python(side if side in PEERS else "ours"),
            environment=ProcessSetting(malloc="kept").environment(),
        )
    except RuntimeError as error:
        return str(error).splitlines()[-1]
    return None


def train_all(
    tasks: dict[str, tuple[GraphFolder, AccuracyTask]],
    sides: Sequence[str],
    seeds: int,
    pieces: Path,
    jobs: int,
    peers: Peers | None = None,
) -> dict[tuple[str, str], str]:
    """Trains what is missing of tasks by name; returns why a side of a task is absent."""
    pairs = list(itertools.product(tasks, sides))

    def missing(pair: tuple[str, str]) -> str | None:
        name, side = pair
        return train_missing(*tasks[name], side, seeds, peers or Peers({}), pieces / f"{name}-{side}.jsonl")

    with ThreadPoolExecutor(jobs) as pool:
        return {pair: why for pair, why in zip(pairs, pool.map(missing, pairs), strict=True) if why}


def compare(ours: np.ndarray, other: np.ndarray) -> dict[str, float]:
    """Returns the mean paired difference of accuracies in points and its one-sided 95 % bound."""
    from scipy.stats import t as student  # which peers' environments may lack

    difference = 100 * (ours - other)
    error = float(difference.std(ddof=1)) / math.sqrt(len(difference))
    bound = float(difference.mean()) - float(student.ppf(0.95, len(difference) - 1)) * error
    return {"mean_difference": float(difference.mean()), "standard_error": error, "lower_95": bound}


def summary(name: str, seeds: int, results: Path) -> dict[str, Any]:
    """Means of every side that has all seeds, and the comparisons of ``PAIRS``."""
    task, tests = asdict(TASKS[name]), dict[str, np.ndarray]()
    for side in SIDES:
        records = seeds_done(pieces_folder(results, "accuracy") / f"{name}-{side}.jsonl", task)
        if set(range(seeds)) <= set(records):
            tests[side] = np.array([records[seed]["test"] for seed in range(seeds)])
    return {
        "task": task,
        "seeds": seeds,
        "mean": {side: 100 * float(values.mean()) for side, values in tests.items()},
        "pairs": [
            {"side": side, "against": other, **compare(tests[side], tests[other])}
            for side, other in PAIRS
            if side in tests and other in tests
        ],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains what is missing, then stores the JSON file."""
    parser = new_parser(__doc__)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES), help="sides to train")
    parser.add_argument("--seeds", type=int, default=20, help="paired seeds, at least 2")
    add_peer_option(parser)
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time, of one thread each")
    parsed = parser.parse_args(arguments)
    peers = Peers(dict(parsed.peer))
    # Written here once, before processes look for them.
    tasks = {name: (graph_of(name, TASKS[name]), TASKS[name]) for name in parsed.tasks}
    sides = [side for side in SIDES if side in parsed.sides]
    pieces = pieces_folder(parsed.results, "accuracy")
    missing = train_all(tasks, sides, parsed.seeds, pieces, parsed.jobs, peers)
    absent = {" ".join(pair): why for pair, why in missing.items()}
    for what, why in absent.items():
        print(f"without {what}: {why}", flush=True)
    found = {name: summary(name, parsed.seeds, parsed.results) for name in parsed.tasks}
    path = parsed.results / "accuracy.json"
    asked = {" ".join(pair) for pair in itertools.product(tasks, sides)}
    stored = read_json(path).get("absent", {}).items()
    write_datasets(path, found, absent={what: why for what, why in stored if what not in asked} | absent)


SIDE_NAMES = {
    "ours": "PyG's layers, our minibatches",
    "reference": "reference sampler",
    "pyg": "PyG's sampler",
    "native": "native layers",
    "native-bfloat16": "native layers, bfloat16",
}


def table(result: Result) -> str:
    """Returns the mean test results and the paired differences with their lower bounds."""
    rows = []
    for task, found in result["datasets"].items():
        for figures in found["pairs"]:
            side, other = figures["side"], figures["against"]
            rows.append(
                [
                    task,
                    str(found["seeds"]),
                    SIDE_NAMES[side],
                    SIDE_NAMES[other],
                    f"{found['mean'][side]:.2f}",
                    f"{found['mean'][other]:.2f}",
                    f"{figures['mean_difference']:+.2f}",
                    f"{figures['lower_95']:+.2f}",
                    f"-{found['task']['allowed_loss']:.1f}",
                ]
            )
    header = ["", "seeds", "", "against", "%", "against %", "mean difference", "lower 95 % bound", "at least"]
    return markdown(header, rows)
