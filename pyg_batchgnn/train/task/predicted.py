"""The nodes that a run learns to predict: those of one node type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.data import LABELS, Dataset
from pyg_batchgnn.train.config import TaskConfig
from pyg_batchgnn.train.errors import TrainError


@dataclass(frozen=True, eq=False)
class PredictedNodes:
    """The nodes of the type that a run predicts.

    Attributes:
        dataset: the name of their data set, for messages.
        node_type: their type.
        num_nodes: the number of nodes N.
        tables: their attributes by name, the labels "y" among them.
        splits: the original ids of each split.
        num_classes: the number of classes; 0 if the labels are no class numbers.
    """

    dataset: str
    node_type: str
    num_nodes: int
    tables: Mapping[str, Tensor]
    splits: Mapping[str, Tensor]
    num_classes: int

    @classmethod
    def of(cls, dataset: Dataset, config: TaskConfig) -> PredictedNodes:
        """Returns the nodes that a configuration names.

        Raises:
            TrainError: it names no type and the data set has several, the data set has no such
                type, or the nodes have no labels.
        """
        nodes = dataset.nodes_of(_node_type(dataset, config.node_type))
        if LABELS not in nodes.tables:
            of_type = f" of type {nodes.name!r}" if dataset.has_names else ""
            raise TrainError(
                f"{dataset.name}: the node labels 'y'{of_type} are missing, but training needs them"
            )
        return cls(dataset.name, nodes.name, nodes.num_nodes, nodes.tables, nodes.splits, nodes.num_classes)

    @property
    def labels(self) -> Tensor:
        """[N, ...], the labels "y"."""
        return self.tables[LABELS]

    def split(self, name: str) -> Tensor:
        """Returns the original ids of a split, int64; none where there is no such split."""
        return self.splits.get(name, torch.empty(0, dtype=torch.int64))


def _node_type(dataset: Dataset, wanted: str | None) -> str:
    """Returns the name of the type that is predicted."""
    types = dataset.schema.node_types
    if wanted is None:
        if len(types) == 1:
            return types[0]
        labelled = [one.name for one in dataset.node_sets if LABELS in one.tables]
        known = f"those with labels 'y' are {', '.join(labelled)}" if labelled else "none has labels 'y'"
        raise TrainError(
            f"{dataset.name} has the node types {', '.join(types)}: name the one to predict with "
            f"--node-type; {known}"
        )
    if not dataset.has_names:
        raise TrainError(
            f"task.node_type is {wanted}, but {dataset.name} is a homogeneous graph; leave --node-type out"
        )
    if wanted not in types:
        raise TrainError(f"task.node_type is {wanted}, but {dataset.name} has {', '.join(types)}")
    return wanted
