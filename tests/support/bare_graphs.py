"""Graphs without features, and with other labels."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from pyg_batchgnn.data import LABELS, Dataset


def without_features(dataset: Dataset) -> Dataset:
    bare = [
        replace(nodes, tables={name: table for name, table in nodes.tables.items() if name != "x"})
        for nodes in dataset.node_sets
    ]
    return replace(dataset, node_sets=tuple(bare))


def with_targets(dataset: Dataset, y: Tensor) -> Dataset:
    nodes = replace(dataset.nodes, tables={**dataset.nodes.tables, LABELS: y}, num_classes=0)
    return replace(dataset, node_sets=(nodes,))


def with_labels(dataset: Dataset) -> Dataset:
    classes = dataset.nodes.tables[LABELS]
    return with_targets(dataset, torch.stack([classes == 0, classes % 2 == 0, classes > 1], dim=1).long())


def with_values(dataset: Dataset) -> Dataset:
    classes = dataset.nodes.tables[LABELS].float()
    noise = torch.randn(len(classes), 2, generator=torch.Generator().manual_seed(0))
    return with_targets(dataset, torch.stack([classes, -classes / 2], dim=1) + 0.1 * noise)
