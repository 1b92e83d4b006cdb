"""The parts of a run, built from its configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Adam

from pyg_batchgnn.data import SPLITS, Dataset
from pyg_batchgnn.embed import SGD, Adagrad, Embedding, EmbeddingOptimizer, SparseAdam, UpdateRule
from pyg_batchgnn.loader import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader
from pyg_batchgnn.train.config import EmbeddingRule, TaskKind, TrainConfig
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.evaluate import Measured, MeasuredLinks, MeasuredNodes, MeasuredTimedLinks
from pyg_batchgnn.train.graphs import PartitionedGraph, WholeGraph
from pyg_batchgnn.train.link_tasks import LinkTask, PredictedLinks
from pyg_batchgnn.train.network import GraphNetwork, LinkNetwork, build_network
from pyg_batchgnn.train.node_tasks import PredictedNodes, task_of
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.replica import BatchNormStatistics, Replica
from pyg_batchgnn.train.run_graph import RunGraph
from pyg_batchgnn.train.tasks import NodeTask, Task
from pyg_batchgnn.train.times import link_times


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


_RULES: Mapping[EmbeddingRule, Callable[[float], UpdateRule]] = {
    EmbeddingRule.ADAM: SparseAdam,
    EmbeddingRule.ADAGRAD: Adagrad,
    EmbeddingRule.SGD: SGD,
}


def row_optimizer(config: TrainConfig, embedding: Embedding) -> EmbeddingOptimizer:
    """Returns the optimizer of learned rows, with the rule and the step size of a run."""
    chosen = config.embedding
    rate = config.optimiser.learning_rate if chosen.learning_rate is None else chosen.learning_rate
    return EmbeddingOptimizer(embedding, _RULES[chosen.rule](rate))


@dataclass(frozen=True)
class TrainingJob:
    """The objects that the trainer works with.

    Attributes:
        task: the prediction that the network learns.
        network: the model and its kind of minibatch.
        replica: the network as all ranks train it.
        running: the running statistics of its BatchNorm layers.
        optimiser: of the network's parameters.
        rows: updates the learned rows; None in a run without them.
        train_loader: shuffled minibatches of the training nodes.
        graph: the graph of the loaders.
        val: the validation split.
        test: the test split.
        sizes: the number of nodes or links of each split.
        notes: lines that the user should read before training starts.
    """

    config: TrainConfig
    task: Task
    network: GraphNetwork
    replica: Replica
    running: BatchNormStatistics
    optimiser: Adam
    rows: EmbeddingOptimizer | None
    train_loader: MacrobatchNeighborLoader | MacrobatchLinkNeighborLoader
    graph: RunGraph
    val: Measured
    test: Measured
    sizes: dict[str, int]
    notes: list[str]

    def labels(self, batch: Any) -> Tensor:
        """Returns [S, ...], the labels of a minibatch's seed nodes, or of its pairs of nodes."""
        if isinstance(self.network, LinkNetwork):
            return self.network.labels(batch)
        return self.graph.labels(self.network, batch)


def build_job(config: TrainConfig, dataset: Dataset, ranks: Ranks) -> TrainingJob:
    """Builds graph, network, optimiser and loaders; collective. The run's seed sets the weights.

    Raises:
        TrainError: the data set lacks training nodes or links, features or labels, the labels do
            not fit the task, or the loader refuses an option.
    """
    task, sizes = task_of(dataset, config.task, config.model.hidden), split_sizes(dataset, config)
    graph: RunGraph
    graph = WholeGraph.of(dataset, config) if ranks.is_alone else PartitionedGraph.of(dataset, config, ranks)
    torch.manual_seed(config.run.seed)
    network = build_network(config, graph.inputs, task.columns, graph.embedding)
    settings = config.optimiser
    parameters = [one for one in network.model.parameters() if one.requires_grad]
    loader, notes, val, test = _loader_and_splits(config, dataset, graph, network, task, ranks)
    return TrainingJob(
        config=config,
        task=task,
        network=network,
        replica=Replica(network, ranks),
        running=BatchNormStatistics(network.model, ranks),
        # Fused, it reads and writes each number once: a fifth of the time on cora's 0.7 million.
        optimiser=Adam(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True),
        rows=None if graph.embedding is None else row_optimizer(config, graph.embedding),
        train_loader=loader,
        graph=graph,
        val=val,
        test=test,
        sizes=sizes,
        notes=[*graph.notes, *notes],
    )


def _loader_and_splits(
    config: TrainConfig, dataset: Dataset, graph: RunGraph, network: GraphNetwork, task: Task, ranks: Ranks
) -> tuple[MacrobatchNeighborLoader | MacrobatchLinkNeighborLoader, list[str], Measured, Measured]:
    """Returns the loader of training, lines that the user should read, and what is measured in
    validations and in the test; collective."""
    val: Measured
    test: Measured
    if isinstance(task, LinkTask):
        assert isinstance(network, LinkNetwork), "links have a network of their own"
        links = PredictedLinks.of(dataset, config.task)
        if config.sampling.time_attr is not None:
            return _timed_loader_and_splits(
                config.sampling.time_attr, dataset, links, graph, network, task, ranks
            )
        val, test = (MeasuredLinks(network, graph, task, links.measured(name)) for name in ("val", "test"))
        return *graph.link_training_loader(links, ranks.size), val, test
    assert isinstance(task, NodeTask), "tasks are on nodes or on links"
    nodes = PredictedNodes.of(dataset, config.task)
    loader, notes = graph.training_loader(nodes.split("train"), ranks.size)
    val, test = (
        MeasuredNodes(config, network, graph, task, ids, graph.evaluation_loader(ids))
        for ids in (nodes.split("val"), nodes.split("test"))
    )
    return loader, notes, val, test


def _timed_loader_and_splits(
    time_attr: str,
    dataset: Dataset,
    links: PredictedLinks,
    graph: RunGraph,
    network: LinkNetwork,
    task: LinkTask,
    ranks: Ranks,
) -> tuple[MacrobatchLinkNeighborLoader, list[str], Measured, Measured]:
    """Returns the same for links that see nothing later than themselves; collective."""
    with ranks.one_error():
        times = link_times(dataset, links, "train", time_attr)
    val, test = (
        MeasuredTimedLinks.of(dataset, links, name, network, graph, task) for name in ("val", "test")
    )
    return *graph.link_training_loader(links, ranks.size, times), val, test
