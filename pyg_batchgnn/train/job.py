"""The parts of a run, built from its configuration."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Adam

from pyg_batchgnn.data import Dataset
from pyg_batchgnn.loader import MacrobatchNeighborLoader
from pyg_batchgnn.train.config import TrainConfig
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.loaders import SampledGraph, evaluation_loader, training_loader
from pyg_batchgnn.train.network import Network, build_network


@dataclass(frozen=True)
class Job:
    """What the trainer works with.

    Attributes:
        labels: [N] int64, of all nodes.
        notes: lines the user should read before training starts.
    """

    config: TrainConfig
    network: Network
    labels: Tensor
    optimiser: Adam
    train_loader: MacrobatchNeighborLoader
    val_loader: MacrobatchNeighborLoader
    test_loader: MacrobatchNeighborLoader
    notes: list[str]


def build_job(config: TrainConfig, dataset: Dataset) -> Job:
    """Network with initial weights of the run's seed, optimiser and loaders.

    Raises:
        TrainError: the data set lacks features or training nodes, or the loader refuses an option.
    """
    if len(dataset.train_idx) == 0:
        raise TrainError(f"{dataset.name} has no training nodes")
    graph = SampledGraph.of(dataset, config)
    torch.manual_seed(config.run.seed)
    network = build_network(config, dataset.num_features, dataset.num_classes)
    settings = config.optimiser
    parameters = network.model.parameters()
    optimiser = Adam(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay)
    train_loader, notes = training_loader(config, graph, dataset.train_idx)
    val_loader = evaluation_loader(config, graph, dataset.val_idx)
    test_loader = evaluation_loader(config, graph, dataset.test_idx)
    return Job(config, network, graph.labels, optimiser, train_loader, val_loader, test_loader, notes)
