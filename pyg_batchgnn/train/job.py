"""The parts of a run, built from its configuration."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.optim import Adam

from pyg_batchgnn.data import Dataset
from pyg_batchgnn.loader import MacrobatchNeighborLoader
from pyg_batchgnn.train.config import ModelConfig, ModelKind, TrainConfig
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.loaders import SampledGraph, evaluation_loader, training_loader
from pyg_batchgnn.train.models import GAT, GCN, GIN, SAGE, PrefixModel


@dataclass(frozen=True)
class Job:
    """What the trainer works with.

    Attributes:
        notes: lines the user should read before training starts.
    """

    config: TrainConfig
    model: PrefixModel
    optimiser: Adam
    train_loader: MacrobatchNeighborLoader
    val_loader: MacrobatchNeighborLoader
    test_loader: MacrobatchNeighborLoader
    notes: list[str]


def build_job(config: TrainConfig, dataset: Dataset) -> Job:
    """Model with initial weights of the run's seed, optimiser and loaders.

    Raises:
        TrainError: the data set lacks features or training nodes, or the loader refuses an option.
    """
    if len(dataset.train_idx) == 0:
        raise TrainError(f"{dataset.name} has no training nodes")
    graph = SampledGraph.of(dataset)
    torch.manual_seed(config.run.seed)
    model = build_model(config.model, dataset.num_features, dataset.num_classes)
    settings = config.optimiser
    optimiser = Adam(model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    train_loader, notes = training_loader(config, graph, dataset.train_idx)
    val_loader = evaluation_loader(config, graph, dataset.val_idx)
    test_loader = evaluation_loader(config, graph, dataset.test_idx)
    return Job(config, model, optimiser, train_loader, val_loader, test_loader, notes)


def build_model(config: ModelConfig, features: int, classes: int) -> PrefixModel:
    """A model with fresh weights from torch's default generator."""
    shape = (features, config.hidden, classes, config.layers)
    if config.kind is ModelKind.SAGE:
        return SAGE(*shape, dropout=config.dropout)
    if config.kind is ModelKind.GCN:
        return GCN(*shape, dropout=config.dropout)
    if config.kind is ModelKind.GIN:
        return GIN(*shape)
    return GAT(*shape, dropout=config.dropout, heads=config.heads)
