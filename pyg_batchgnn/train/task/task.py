"""The interface of what a run learns: its loss, and the metric that chooses the best epoch."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor

from pyg_batchgnn.train.config import Metric


class Task(ABC):
    """A prediction that a model learns from minibatches.

    Attributes:
        metrics: all that an evaluation measures, the default metric first.
        train_metric: the metric of training minibatches.
        unit: what is predicted, in the plural.
        metric: decides which epoch is the best.
        columns: the number of columns of the model's output.
        loss_label: the name of the loss and its unit, for plots.
    """

    metrics: ClassVar[tuple[Metric, ...]]
    train_metric: ClassVar[Metric]
    unit: ClassVar[str]
    metric: Metric
    columns: int
    loss_label: str

    @property
    @abstractmethod
    def described(self) -> str:
        """The task for people, as in "16 classes"."""

    @abstractmethod
    def targets(self, labels: Tensor) -> Tensor:
        """Returns the targets of a minibatch, as `loss` takes them.

        Args:
            labels: [S, ...], as the run's source of labels gives them.
        """

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Returns the mean loss of at least one target.

        Args:
            outputs: [S, ...] float32, of the model.
            targets: of the same minibatch.
        """

    def weight(self, targets: Tensor) -> float:
        """Returns the weight that these targets have together in the mean loss of more of them."""
        return float(len(targets))

    @abstractmethod
    def train_score(self, outputs: Tensor, targets: Tensor) -> tuple[float, float]:
        """Returns a numerator and a denominator of `train_metric`. Sums over minibatches may be
        divided."""

    def improves(self, score: float, best: float | None) -> bool:
        """Returns whether a score of `metric` is better than the best one before, if any.

        A score that is not finite is never better, and any finite one is better than it.
        """
        if not math.isfinite(score):
            return False
        if best is None or not math.isfinite(best):
            return True
        return score < best if self.metric.is_error else score > best
