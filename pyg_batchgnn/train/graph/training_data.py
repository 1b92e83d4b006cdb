"""The features, labels and splits of a data set that training reads."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from pyg_batchgnn.data import FEATURES, LABELS, Dataset
from pyg_batchgnn.train.errors import TrainError


@dataclass(frozen=True, eq=False)
class TrainingData:
    """The attributes and splits that training reads.

    Attributes:
        features: [N, F] of a floating-point type, one row per node.
        labels: [N, ...], the labels of each node, of any type.
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
    def of(cls, dataset: Dataset) -> TrainingData:
        """Takes features, labels and splits from a data set.

        Raises:
            TrainError: the features are missing, or have a type or shape that models cannot read,
                or the labels are missing.
        """
        if LABELS not in dataset.nodes.tables:
            raise TrainError(f"{dataset.name}: the node labels 'y' are missing, but training needs them")
        return cls(
            _features(dataset),
            dataset.nodes.tables[LABELS],
            dataset.split("train"),
            dataset.split("val"),
            dataset.split("test"),
        )


def _features(dataset: Dataset) -> Tensor:
    x = dataset.nodes.tables.get(FEATURES)
    if x is None:
        raise TrainError(f"{dataset.name} has no node features 'x', which every model here needs")
    if not x.is_floating_point() or x.dim() != 2:
        found = f"{str(x.dtype).removeprefix('torch.')} {list(x.shape)}"
        raise TrainError(
            f"{dataset.name}: the node features 'x' are {found}, but models need floating-point "
            "numbers [N, F]; convert 'x' to float32"
        )
    return x


def homogeneous_only(dataset: Dataset) -> Dataset:
    """Returns a data set that the trainer and the planner can use.

    Raises:
        TrainError: it has named node types and relations.
    """
    if dataset.schema.has_names:
        raise TrainError(
            f"{dataset.name} has the node types {', '.join(dataset.schema.node_types)}, but this command is "
            "for homogeneous graphs; write a script with a loader, as docs/reference/typed-graphs.md shows"
        )
    return dataset
