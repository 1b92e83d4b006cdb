"""Trains a model on one side's minibatches and writes a line of JSON for every seed.

`benchmark.accuracy.measure` starts it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from benchmark.networks.pyg import Pairs, Sliced
from benchmark.networks.recipe import DROPOUT, StepTrainer
from benchmark.support.graphs import GraphFolder

NATIVE = {"native": torch.float32, "native-bfloat16": torch.bfloat16}


def precision(side: str) -> torch.dtype:
    """Returns the dtype in which a side holds features and computes."""
    return NATIVE.get(side, torch.float32)


class SeedOrder:
    """The seed nodes of the minibatches, the same on every side, shuffled by (seed, epoch).

    Yields lists of positions in the list of training nodes, as a ``batch_sampler`` does.
    """

    def __init__(self, count: int, batch_size: int, seed: int) -> None:
        self.count, self.batch_size, self.seed, self.epoch = count, batch_size, seed, 0

    def __iter__(self) -> Iterator[list[int]]:
        generator = torch.Generator().manual_seed(1_000_003 * self.seed + self.epoch)
        self.epoch += 1
        for positions in torch.randperm(self.count, generator=generator).split(self.batch_size):
            yield positions.tolist()

    def __len__(self) -> int:
        return -(-self.count // self.batch_size)


class ReferenceLoader:
    """Minibatches of the reference sampler in the common order."""

    def __init__(self, graph: GraphFolder, train: Tensor, order: SeedOrder, **options: Any) -> None:
        from benchmark.accuracy.reference import ReferenceSampler

        self.sampler, self.train, self.order = ReferenceSampler(graph, **options), train.numpy(), order

    def __iter__(self) -> Iterator[Any]:
        return (self.sampler.minibatch(self.train[positions]) for positions in self.order)


def batches(
    side: str, graph: GraphFolder, train: Tensor, order: SeedOrder, task: dict[str, Any], seed: int
) -> Any:
    """An iterable of minibatches, one epoch an iteration."""
    fanouts, replace = tuple(task["fanouts"]), task["replace"]
    if side == "reference":
        return ReferenceLoader(graph, train, order, fanouts=fanouts, replace=replace, seed=seed)
    data = Data(x=graph.x, edge_index=graph.edge_index, y=graph.y)
    common = {
        "num_neighbors": list(fanouts),
        "input_nodes": train,
        "replace": replace,
        "batch_sampler": order,
        "is_sorted": True,
    }
    if side != "pyg":
        from pyg_batchgnn.loader import MacrobatchNeighborLoader

        data.x = graph.x.to(precision(side))
        export: Literal["pyg", "native"] = "native" if side in NATIVE else "pyg"
        return MacrobatchNeighborLoader(data, seed=seed, threads=1, export=export, **common)
    from torch_geometric.loader import NeighborLoader

    return NeighborLoader(data, **common)


class PygSide:
    """PyG's layers on minibatches with PyG's attributes."""

    def __init__(self, graph: GraphFolder, task: dict[str, Any]) -> None:
        self.graph = graph
        self.model: nn.Module = Sliced(
            "sage", graph.num_features, task["hidden"], graph.num_classes, len(task["fanouts"]), Pairs
        )

    def forward(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Logits and labels of the seeds."""
        return self.model(batch), batch.y[: batch.batch_size]

    def everywhere(self) -> Tensor:
        """Returns [N, classes] logits from all neighbours of every node, without sampling."""
        assert isinstance(self.model, Sliced)
        return self.model.whole_graph(self.graph.x, self.graph.adjacency)


class NativeSide:
    """The native layers on native minibatches."""

    def __init__(self, graph: GraphFolder, task: dict[str, Any], dtype: torch.dtype) -> None:
        from pyg_batchgnn.nn import models

        shape = (graph.num_features, task["hidden"], len(task["fanouts"]), graph.num_classes)
        self.graph, self.dtype = graph, dtype
        self.model: nn.Module = models.SAGE(*shape, dropout=DROPOUT)

    def _autocast(self) -> torch.autocast:
        return torch.autocast("cpu", torch.bfloat16, enabled=self.dtype is torch.bfloat16)

    def forward(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Logits and labels of the seeds."""
        with self._autocast():
            return self.model(batch), batch.attribute("y", batch.batch_size)

    def everywhere(self) -> Tensor:
        """[N, classes] logits, from all neighbours of every node."""
        with self._autocast():
            return self.model(self.graph.x.to(self.dtype), self.graph.edge_index)


Side = PygSide | NativeSide


def train_epoch(loader: Iterable[Any], side: Side, trainer: StepTrainer) -> None:
    """One pass over the training nodes."""
    side.model.train()
    for batch in loader:
        trainer.step(*side.forward(batch))


@torch.no_grad()
def accuracies(side: Side, graph: GraphFolder) -> tuple[float, float]:
    """Returns the validation and the test accuracy."""
    side.model.eval()
    right = side.everywhere().argmax(dim=1) == graph.y
    validation, test = (right[graph.read(f"{part}_idx").long()].float().mean() for part in ("val", "test"))
    return float(validation), float(test)


def train_once(name: str, graph: GraphFolder, task: dict[str, Any], seed: int) -> dict[str, Any]:
    """Trains from the seed's initial weights; tests the epoch with the best validation."""
    started = time.perf_counter()
    torch.manual_seed(seed)
    side: Side = NativeSide(graph, task, precision(name)) if name in NATIVE else PygSide(graph, task)
    trainer = StepTrainer(side.model)
    train = graph.read("train_idx").long()
    loader = batches(name, graph, train, SeedOrder(len(train), task["batch_size"], seed), task, seed)
    best, best_epoch = (-1.0, -1.0), 0
    for epoch in range(task["epochs"]):
        train_epoch(loader, side, trainer)
        now = accuracies(side, graph)
        if now[0] > best[0]:
            best, best_epoch = now, epoch
    seconds = time.perf_counter() - started
    return {"seed": seed, "val": best[0], "test": best[1], "epoch": best_epoch, "seconds": round(seconds, 2)}


def main() -> None:
    """Arguments: one JSON object with ``side``, ``graph``, ``task``, ``seeds`` and ``output``."""
    order = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    graph, output = GraphFolder.open(order["graph"]), Path(order["output"])
    for seed in order["seeds"]:
        record = train_once(order["side"], graph, order["task"], seed)
        with output.open("a") as lines:
            lines.write(json.dumps({**record, "task": order["task"]}) + "\n")


if __name__ == "__main__":
    main()
