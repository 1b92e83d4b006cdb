"""The parts of a run, built from its configuration."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Adam

from pyg_batchgnn.data import SPLITS, Dataset
from pyg_batchgnn.embed import EmbeddingOptimizer
from pyg_batchgnn.loader import MacrobatchNeighborLoader
from pyg_batchgnn.train.config import TrainConfig
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.graph import (
    LabelSource,
    PartitionedGraph,
    RunGraph,
    WholeGraph,
    evaluation_loader,
    training_loader,
)
from pyg_batchgnn.train.model import BatchNormStatistics, GraphNetwork, Replica, build_network, row_optimizer
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.task import NodeTask, PredictedNodes, task_of


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
        val: [v] int64, the validation nodes.
        test: [t] int64, the test nodes.
        val_loader: minibatches of the validation nodes.
        test_loader: minibatches of the test nodes.
        notes: lines that the user should read before training starts.
    """

    config: TrainConfig
    task: NodeTask
    network: GraphNetwork
    replica: Replica
    running: BatchNormStatistics
    labels: LabelSource
    optimiser: Adam
    rows: EmbeddingOptimizer | None
    train_loader: MacrobatchNeighborLoader
    graph: RunGraph
    val: Tensor
    test: Tensor
    val_loader: MacrobatchNeighborLoader
    test_loader: MacrobatchNeighborLoader
    notes: list[str]


def build_job(config: TrainConfig, dataset: Dataset, ranks: Ranks) -> TrainingJob:
    """Builds graph, network, optimiser and loaders; collective. The run's seed sets the weights.

    Raises:
        TrainError: the data set lacks training nodes, features or labels, the labels do not fit the
            task, or the loader refuses an option.
    """
    nodes, task = PredictedNodes.of(dataset, config.task), task_of(dataset, config.task)
    train, val, test = (nodes.split(name) for name in SPLITS)
    if len(train) == 0:
        raise TrainError(f"{dataset.name} has no training nodes; give its data a training split")
    if config.run.patience is not None and len(val) == 0:
        raise TrainError(f"run.patience is {config.run.patience}, but {dataset.name} has no validation nodes")
    graph: RunGraph
    graph = WholeGraph.of(dataset, config) if ranks.is_alone else PartitionedGraph.of(dataset, config, ranks)
    torch.manual_seed(config.run.seed)
    network = build_network(config, graph.inputs, task.columns, graph.embedding)
    settings = config.optimiser
    parameters = [one for one in network.model.parameters() if one.requires_grad]
    train_loader, notes = training_loader(config, graph, train, ranks.size)
    return TrainingJob(
        config=config,
        task=task,
        network=network,
        replica=Replica(network, ranks),
        running=BatchNormStatistics(network.model, ranks),
        labels=graph.labels,
        optimiser=Adam(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay),
        rows=None if graph.embedding is None else row_optimizer(config, graph.embedding),
        train_loader=train_loader,
        graph=graph,
        val=val,
        test=test,
        val_loader=evaluation_loader(config, graph, val),
        test_loader=evaluation_loader(config, graph, test),
        notes=[*graph.notes, *notes],
    )
