"""The attributes and splits of a data set that training reads."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from pyg_batchgnn.data import FEATURES, LABELS, Dataset, class_numbers
from pyg_batchgnn.train.errors import TrainError


@dataclass(frozen=True, eq=False)
class NodeClassification:
    """The task of classifying nodes.

    Attributes:
        features: [N, F] of a floating-point type, one row per node.
        labels: [N] int64, the class of each node; -1 for a node without a label.
        train: original ids of the training nodes.
        val: original ids of the validation nodes.
        test: original ids of the test nodes.
    """

    features: Tensor
    labels: Tensor
    train: Tensor
    val: Tensor
    test: Tensor

    @classmethod
    def of(cls, dataset: Dataset) -> NodeClassification:
        """Takes features, labels and splits from a data set.

        Raises:
            TrainError: features or labels are missing, or have a type or shape that training cannot
                use.
        """
        return cls(
            _features(dataset),
            _labels(dataset),
            dataset.split("train"),
            dataset.split("val"),
            dataset.split("test"),
        )


def _features(dataset: Dataset) -> Tensor:
    x = dataset.nodes.tables.get(FEATURES)
    if x is None:
        raise TrainError(f"{dataset.name} has no node features 'x', which every model here needs")
    if not x.is_floating_point() or x.dim() != 2:
        raise TrainError(
            f"{dataset.name}: the node features 'x' are {_described(x)}, but models need floating-point "
            "numbers [N, F]; convert 'x' to float32"
        )
    return x


def _labels(dataset: Dataset) -> Tensor:
    tables = dataset.nodes.tables
    labels = class_numbers(tables)
    if labels is None:
        found = f"are {_described(tables[LABELS])}" if LABELS in tables else "are missing"
        raise TrainError(
            f"{dataset.name}: the node labels 'y' {found}, but training needs class numbers: integers [N]; "
            "train on other targets with a script of your own"
        )
    return labels


def _described(table: Tensor) -> str:
    """Returns the type and shape of a table, as in "float32 [5, 2]"."""
    return f"{str(table.dtype).removeprefix('torch.')} {list(table.shape)}"
