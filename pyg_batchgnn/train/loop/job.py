"""The parts of a run, built from its configuration."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.optim import Adam

from pyg_batchgnn.data import Dataset
from pyg_batchgnn.loader import MacrobatchNeighborLoader
from pyg_batchgnn.train.config import TrainConfig
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.graph import (
    LabelSource,
    NodeClassification,
    PartitionedGraph,
    RunGraph,
    WholeGraph,
    evaluation_loader,
    training_loader,
)
from pyg_batchgnn.train.model import BatchNormStatistics, GraphNetwork, Replica, build_network
from pyg_batchgnn.train.ranks import Ranks


@dataclass(frozen=True)
class TrainingJob:
    """The objects that the trainer works with.

    Attributes:
        config: of the run.
        network: the model and its kind of minibatch.
        replica: the network as all ranks train it.
        running: the running statistics of its BatchNorm layers.
        labels: the source of a minibatch's labels.
        optimiser: of the network's parameters.
        train_loader: shuffled minibatches of the training nodes.
        val_loader: minibatches of the validation nodes.
        test_loader: minibatches of the test nodes.
        notes: lines that the user should read before training starts.
    """

    config: TrainConfig
    network: GraphNetwork
    replica: Replica
    running: BatchNormStatistics
    labels: LabelSource
    optimiser: Adam
    train_loader: MacrobatchNeighborLoader
    val_loader: MacrobatchNeighborLoader
    test_loader: MacrobatchNeighborLoader
    notes: list[str]


def build_job(config: TrainConfig, dataset: Dataset, ranks: Ranks) -> TrainingJob:
    """Builds graph, network, optimiser and loaders; collective. The run's seed sets the weights.

    Raises:
        TrainError: the data set lacks training nodes, features or labels, or the loader refuses an
            option.
    """
    if len(dataset.split("train")) == 0:
        raise TrainError(f"{dataset.name} has no training nodes; give its data a training split")
    task = NodeClassification.of(dataset)
    graph: RunGraph
    graph = WholeGraph.of(dataset, config) if ranks.is_alone else PartitionedGraph.of(dataset, config, ranks)
    torch.manual_seed(config.run.seed)
    network = build_network(config, dataset.num_features, dataset.num_classes)
    settings = config.optimiser
    parameters = network.model.parameters()
    train_loader, notes = training_loader(config, graph, task.train, ranks.size)
    return TrainingJob(
        config=config,
        network=network,
        replica=Replica(network, ranks),
        running=BatchNormStatistics(network.model, ranks),
        labels=graph.labels,
        optimiser=Adam(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay),
        train_loader=train_loader,
        val_loader=evaluation_loader(config, graph, task.val),
        test_loader=evaluation_loader(config, graph, task.test),
        notes=[*graph.notes, *notes],
    )
