"""The task of predicting one of several classes."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from pyg_batchgnn.data import LABELS, class_numbers
from pyg_batchgnn.train.config import Metric
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.task.metrics import f1_score
from pyg_batchgnn.train.task.node_task import NodeTask, Tally


class ClassTask(NodeTask):
    """Predicts one of C classes, with cross entropy.

    Args:
        classes: C.
        metric: decides which epoch is the best.
        weights: [C] float32, weights of the classes in the loss, or None.
    """

    metrics: ClassVar[tuple[Metric, ...]] = (Metric.ACCURACY, Metric.MACRO_F1)
    train_metric: ClassVar[Metric] = Metric.ACCURACY

    def __init__(self, classes: int, metric: Metric, weights: Tensor | None = None) -> None:
        self.columns = classes
        self.metric = metric
        self.loss_label = "cross entropy (nats per node)"
        self._weights = weights

    @property
    def described(self) -> str:
        return f"{self.columns} classes"

    def targets(self, labels: Tensor) -> Tensor:
        """Returns [S] int64, the class of each node."""
        numbers = class_numbers({LABELS: labels})
        assert numbers is not None, "`task_of` has checked the labels"
        return numbers

    def labelled(self, labels: Tensor) -> Tensor:
        """Returns [S] bool. A node of class -1 has no label."""
        return self.targets(labels) >= 0

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, self._weights)

    def weight(self, targets: Tensor) -> float:
        return float(len(targets) if self._weights is None else self._weights[targets].sum())

    def train_score(self, outputs: Tensor, targets: Tensor) -> tuple[float, float]:
        return float((outputs.argmax(dim=1) == targets).sum()), float(len(targets))

    def tally(self) -> Tally:
        return _ClassTally(self.columns)

    def predictions(self, outputs: Tensor) -> dict[str, Tensor]:
        return {"predictions": outputs.argmax(dim=1), "probabilities": outputs.softmax(dim=1)}


class _ClassTally(Tally):
    """The number of nodes of each class that were predicted right, wrongly to have it, and not."""

    def __init__(self, classes: int) -> None:
        self._counts = torch.zeros(3, classes, dtype=torch.int64)

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        classes, found = self._counts.size(1), outputs.argmax(dim=1)
        is_right = found == targets
        for row, of in zip(
            self._counts, (targets[is_right], found[~is_right], targets[~is_right]), strict=True
        ):
            row += torch.bincount(of, minlength=classes)

    def scores(self, ranks: Ranks) -> dict[Metric, float]:
        sums = ranks.table(self._counts.flatten().tolist()).sum(dim=0)
        true, false, missed = sums.view_as(self._counts)
        occurs = true + false + missed > 0
        return {
            Metric.ACCURACY: float(true.sum() / (true + missed).sum()),
            Metric.MACRO_F1: float(f1_score(true, false, missed)[occurs].mean()),
        }
