"""Classes of the nodes of a homogeneous graph, trained on one side's minibatches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from benchmark.accuracy.tasks import PlainTask
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
    side: str, graph: GraphFolder, train: Tensor, order: SeedOrder, task: PlainTask, seed: int
) -> Any:
    """An iterable of minibatches, one epoch an iteration."""
    fanouts, replace = task.fanouts, task.replace
    if side == "reference":
        return ReferenceLoader(graph, train, order, fanouts=fanouts, replace=replace, seed=seed)
    data = Data(x=graph.x, edge_index=graph.edge_index, y=graph.y)
    common: dict[str, Any] = {
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

    def __init__(self, graph: GraphFolder, task: PlainTask) -> None:
        self.graph = graph
        self.model: nn.Module = Sliced(
            "sage", graph.num_features, task.hidden, graph.num_classes, len(task.fanouts), Pairs
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

    def __init__(self, graph: GraphFolder, task: PlainTask, dtype: torch.dtype) -> None:
        from pyg_batchgnn.nn import models

        shape = (graph.num_features, task.hidden, len(task.fanouts), graph.num_classes)
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


class PlainTraining:
    """The training of a task on one side; see `worker.Training`."""

    def __init__(self, side: str, task: PlainTask, graph: GraphFolder, seed: int) -> None:
        torch.manual_seed(seed)
        self._graph = graph
        self._side: Side = (
            NativeSide(graph, task, precision(side)) if side in NATIVE else PygSide(graph, task)
        )
        self._trainer = StepTrainer(self._side.model)
        train = graph.read("train_idx").long()
        order = SeedOrder(len(train), task.batch_size, seed)
        self.model = self._side.model
        self.minibatches = batches(side, graph, train, order, task, seed)

    def step(self, batch: Any) -> None:
        """Trains on a minibatch."""
        self._trainer.step(*self._side.forward(batch))

    def measure(self) -> tuple[float, float]:
        """Returns the validation and the test accuracy."""
        right = self._side.everywhere().argmax(dim=1) == self._graph.y
        found = (right[self._graph.read(f"{part}_idx").long()] for part in ("val", "test"))
        validation, test = (float(one.float().mean()) for one in found)
        return validation, test
