"""The splits of a run: the minibatches it trains on, and the nodes or links it is measured on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from pyg_batchgnn.data import SPLITS, Dataset
from pyg_batchgnn.loader import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader
from pyg_batchgnn.train.config import EvaluationKind, TaskKind, TrainConfig
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.graph import (
    LabelSource,
    RunGraph,
    evaluation_loader,
    link_training_loader,
    training_loader,
)
from pyg_batchgnn.train.loop.evaluate import evaluate
from pyg_batchgnn.train.loop.exact import evaluate_exactly
from pyg_batchgnn.train.loop.link_evaluation import MeasuredLinks
from pyg_batchgnn.train.model import GraphNetwork, LinkNetwork
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.task import (
    Evaluation,
    LinkTask,
    NodeTask,
    PredictedLinks,
    PredictedNodes,
    Task,
)


class Measured(Protocol):
    """The nodes or links of a split, on which a run is measured."""

    def __len__(self) -> int: ...

    def evaluate(self, ranks: Ranks, stop: Callable[[], bool]) -> Evaluation | None:
        """Returns loss and metrics; collective.

        The result is None if the split is empty, or if `stop` asks for an early end.
        """


@dataclass(frozen=True, eq=False)
class MeasuredNodes:
    """The nodes of a split, on which a run is measured.

    Attributes:
        config: of the run.
        network: of the run.
        graph: of the run.
        task: of the run.
        nodes: [n] int64 original ids, the same on every rank.
        loader: this rank's minibatches of them, for an evaluation by sampling.
    """

    config: TrainConfig
    network: GraphNetwork
    graph: RunGraph
    task: NodeTask
    nodes: Tensor
    loader: MacrobatchNeighborLoader

    def __len__(self) -> int:
        return len(self.nodes)

    def evaluate(self, ranks: Ranks, stop: Callable[[], bool] = lambda: False) -> Evaluation | None:
        """Returns loss and metrics, as the run is configured; collective."""
        if self.config.sampling.evaluation is EvaluationKind.EXACT:
            return evaluate_exactly(self.network, self.graph, self.nodes, self.task, ranks, stop)
        return evaluate(self.network, self.loader, self.graph.labels, self.task, ranks, stop)


@dataclass(frozen=True, eq=False)
class RunSplits:
    """The splits of a run, ready for its trainer.

    Attributes:
        train_loader: shuffled minibatches of the training split.
        labels: the source of a minibatch's labels.
        val: the validation split.
        test: the test split.
        notes: lines that the user should read.
    """

    train_loader: MacrobatchNeighborLoader | MacrobatchLinkNeighborLoader
    labels: LabelSource
    val: Measured
    test: Measured
    notes: list[str]


def split_sizes(dataset: Dataset, config: TrainConfig) -> dict[str, int]:
    """Returns the number of nodes or links of each split.

    Raises:
        TrainError: there are none for training, or none for the validation that the run needs.
    """
    is_link = config.task.kind is TaskKind.LINKS
    found: Any = (PredictedLinks if is_link else PredictedNodes).of(dataset, config.task)
    sizes = {name: len(found.split(name)) for name in SPLITS}
    unit = "links" if is_link else "nodes"
    if not sizes["train"]:
        remedy = (
            "give its data links, or hold edges out with hold_out=0.1 behind its name"
            if is_link
            else "give its data a training split"
        )
        raise TrainError(f"{dataset.name} has no training {unit}; {remedy}")
    if config.run.patience is not None and not sizes["val"]:
        wanted = f"run.patience is {config.run.patience}"
        raise TrainError(f"{wanted}, but {dataset.name} has no validation {unit}")
    return sizes


def run_splits(
    config: TrainConfig, dataset: Dataset, graph: RunGraph, network: GraphNetwork, task: Task, ranks: Ranks
) -> RunSplits:
    """Makes the loaders of a run; collective.

    Raises:
        TrainError: the loader refuses an option.
    """
    if isinstance(task, LinkTask):
        assert isinstance(network, LinkNetwork), "links have a network of their own"
        return _of_links(config, PredictedLinks.of(dataset, config.task), graph, network, task, ranks)
    assert isinstance(task, NodeTask), "tasks are on nodes or on links"
    nodes = PredictedNodes.of(dataset, config.task)
    loader, notes = training_loader(config, graph, nodes.split("train"), ranks.size)
    val, test = (
        MeasuredNodes(config, network, graph, task, ids, evaluation_loader(config, graph, ids))
        for ids in (nodes.split("val"), nodes.split("test"))
    )
    return RunSplits(loader, graph.labels, val, test, notes)


def _of_links(
    config: TrainConfig,
    links: PredictedLinks,
    graph: RunGraph,
    network: LinkNetwork,
    task: LinkTask,
    ranks: Ranks,
) -> RunSplits:
    loader, notes = link_training_loader(config, graph, links, ranks.size)
    val, test = (MeasuredLinks(network, graph, task, links.measured(name)) for name in ("val", "test"))
    return RunSplits(loader, lambda _, batch: network.labels(batch), val, test, notes)
