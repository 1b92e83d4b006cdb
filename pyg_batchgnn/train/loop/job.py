"""The parts of a run, built from its configuration."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.optim import Adam

from pyg_batchgnn.data import Dataset
from pyg_batchgnn.embed import EmbeddingOptimizer
from pyg_batchgnn.loader import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader
from pyg_batchgnn.train.config import TrainConfig
from pyg_batchgnn.train.graph import (
    LabelSource,
    PartitionedGraph,
    RunGraph,
    WholeGraph,
)
from pyg_batchgnn.train.loop.splits import Measured, run_splits, split_sizes
from pyg_batchgnn.train.model import BatchNormStatistics, GraphNetwork, Replica, build_network, row_optimizer
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.task import Task, task_of


@dataclass(frozen=True)
class TrainingJob:
    """The objects that the trainer works with.

    Attributes:
        config: of the run.
        task: the prediction that the network learns.
        network: the model and its kind of minibatch.
        replica: the network as all ranks train it.
        running: the running statistics of its BatchNorm layers.
        labels: the source of a minibatch's labels.
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
    labels: LabelSource
    optimiser: Adam
    rows: EmbeddingOptimizer | None
    train_loader: MacrobatchNeighborLoader | MacrobatchLinkNeighborLoader
    graph: RunGraph
    val: Measured
    test: Measured
    sizes: dict[str, int]
    notes: list[str]


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
    splits = run_splits(config, dataset, graph, network, task, ranks)
    return TrainingJob(
        config=config,
        task=task,
        network=network,
        replica=Replica(network, ranks),
        running=BatchNormStatistics(network.model, ranks),
        labels=splits.labels,
        optimiser=Adam(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay),
        rows=None if graph.embedding is None else row_optimizer(config, graph.embedding),
        train_loader=splits.train_loader,
        graph=graph,
        val=splits.val,
        test=splits.test,
        sizes=sizes,
        notes=[*graph.notes, *splits.notes],
    )
