"""The task of predicting values."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from pyg_batchgnn.train.config import Metric, TaskLoss
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.task.node_task import NodeTask, Tally


class ValueTask(NodeTask):
    """Predicts one or several numbers, with the mean of squared or of absolute errors.

    Args:
        shape: of a node's target: () or (C,).
        metric: decides which epoch is the best.
        loss: of the errors.
    """

    metrics: ClassVar[tuple[Metric, ...]] = (Metric.MAE, Metric.RMSE)
    train_metric: ClassVar[Metric] = Metric.MAE

    def __init__(self, shape: tuple[int, ...], metric: Metric, loss: TaskLoss) -> None:
        self.columns = math.prod(shape)
        self.metric = metric
        self.loss_label = "mean squared error" if loss is TaskLoss.MSE else "mean absolute error"
        self._shape = shape
        self._loss = F.mse_loss if loss is TaskLoss.MSE else F.l1_loss

    @property
    def described(self) -> str:
        return f"{self.columns} value{'' if self.columns == 1 else 's'} per node"

    def targets(self, labels: Tensor) -> Tensor:
        """Returns [S, C] float32, the values of each node."""
        return labels.reshape(len(labels), self.columns).float()

    def labelled(self, labels: Tensor) -> Tensor:
        """Returns [S] bool. A node needs finite values."""
        return self.targets(labels).isfinite().all(dim=1)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self._loss(outputs, targets)

    def train_score(self, outputs: Tensor, targets: Tensor) -> tuple[float, float]:
        return float((outputs - targets).abs().sum(dtype=torch.float64)), float(targets.numel())

    def tally(self) -> Tally:
        return _ValueTally()

    def predictions(self, outputs: Tensor) -> dict[str, Tensor]:
        return {"predictions": outputs.reshape(len(outputs), *self._shape)}


class _ValueTally(Tally):
    """The sums of absolute and of squared errors, and the number of values."""

    def __init__(self) -> None:
        self._sums = [0.0, 0.0, 0.0]

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        errors = outputs.double() - targets.double()
        more = float(errors.abs().sum()), float(errors.square().sum()), float(errors.numel())
        self._sums = [a + b for a, b in zip(self._sums, more, strict=True)]

    def scores(self, ranks: Ranks) -> dict[Metric, float]:
        absolute, squared, count = ranks.table(self._sums).sum(dim=0).tolist()
        return {Metric.MAE: absolute / count, Metric.RMSE: math.sqrt(squared / count)}
