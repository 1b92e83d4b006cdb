"""The weights of classes and of labels in the loss."""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from pyg_batchgnn.train.errors import TrainError

Wanted: TypeAlias = Literal["balanced"] | tuple[float, ...] | None


def class_weights(wanted: Wanted, labels: Tensor, classes: int) -> Tensor | None:
    """Returns [C] float32, the weight of each class in the loss, or None if all weigh the same.

    Balanced weights are n / (C * the number of nodes of the class), as scikit-learn's are.

    Args:
        wanted: the configured weights.
        labels: [n] class numbers of the training nodes.
        classes: C.

    Raises:
        TrainError: there is another number of weights.
    """
    if wanted != "balanced":
        return _given(wanted, classes, "classes")
    counts = torch.bincount(labels.flatten().long().clamp(min=0), minlength=classes)
    return (len(labels) / (classes * counts.clamp(min=1).double())).float()


def label_weights(wanted: Wanted, labels: Tensor, columns: int) -> Tensor | None:
    """Returns [C] float32, the weight of positive nodes of each label, or None if they weigh as
    much as negative ones.

    Balanced weights are the number of negative nodes over that of positive ones.

    Args:
        wanted: the configured weights.
        labels: [n, C] labels of the training nodes.
        columns: C.

    Raises:
        TrainError: there is another number of weights.
    """
    if wanted != "balanced":
        return _given(wanted, columns, "labels")
    positive = (labels.reshape(len(labels), columns) > 0).sum(dim=0)
    return ((len(labels) - positive).clamp(min=1).double() / positive.clamp(min=1)).float()


def _given(wanted: tuple[float, ...] | None, columns: int, what: str) -> Tensor | None:
    if wanted is None:
        return None
    if len(wanted) != columns:
        raise TrainError(
            f"task.class_weights has {len(wanted)} numbers, but there are {columns} {what}; "
            "give one number for each, or balanced"
        )
    return torch.tensor(wanted, dtype=torch.float32)
