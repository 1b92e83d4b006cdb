"""What training needs of a data set's attributes, with errors that say what is missing."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.data import FEATURES, LABELS, Dataset, class_numbers
from pyg_batchgnn.train.errors import TrainError

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def training_features(dataset: Dataset) -> Tensor:
    """Returns the features "x", [N, F] floating point.

    Raises:
        TrainError: there are none, or they have another type or shape.
    """
    x = dataset.nodes.tables.get(FEATURES)
    if x is None:
        raise TrainError(f"{dataset.name} has no node features, which every model here needs")
    if x.dtype not in _FLOATS or x.dim() != 2:
        raise TrainError(
            f"{dataset.name}: the node features x are {_described(x)}, but models need "
            f"floating-point numbers [N, F]; convert x to float32"
        )
    return x


def training_labels(dataset: Dataset) -> Tensor:
    """Returns the class numbers "y", [N] int64.

    Raises:
        TrainError: there are none, or y holds targets of another kind.
    """
    tables = dataset.nodes.tables
    labels = class_numbers(tables)
    if labels is None:
        seen = f"are {_described(tables[LABELS])}" if LABELS in tables else "are missing"
        raise TrainError(
            f"{dataset.name}: the node labels y {seen}, but training needs class numbers: integers [N]; "
            f"train other targets with a script of your own"
        )
    return labels


def _described(table: Tensor) -> str:
    return f"{str(table.dtype).removeprefix('torch.')} {list(table.shape)}"
