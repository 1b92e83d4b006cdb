"""The interface of a task: its loss, its metrics, and the form of its predictions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor

from pyg_batchgnn.train.config import Metric
from pyg_batchgnn.train.ranks import Ranks


class Tally(ABC):
    """Predictions of an evaluation so far, in the form in which its metrics need them."""

    @abstractmethod
    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Adds the nodes of a minibatch, as `NodeTask.loss` takes them."""

    @abstractmethod
    def scores(self, ranks: Ranks) -> dict[Metric, float]:
        """Returns the metrics of the nodes of all ranks; collective. There is at least one node."""


class NodeTask(ABC):
    """A prediction for each node.

    Attributes:
        metrics: all that an evaluation measures, the default metric first.
        metric: decides which epoch is the best.
        columns: the number of columns of the model's output.
        loss_label: the name of the loss and its unit, for plots.
    """

    metrics: ClassVar[tuple[Metric, ...]]
    train_metric: ClassVar[Metric]
    metric: Metric
    columns: int
    loss_label: str

    @property
    @abstractmethod
    def described(self) -> str:
        """The task for people, as in "16 classes"."""

    @abstractmethod
    def targets(self, labels: Tensor) -> Tensor:
        """Returns the targets of nodes, as `loss` takes them.

        Args:
            labels: [S, ...], the nodes' rows of the labels "y".
        """

    @abstractmethod
    def labelled(self, labels: Tensor) -> Tensor:
        """Returns [S] bool, whether each node has a label. Arguments are those of `targets`."""

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Returns the mean loss of at least one node.

        Args:
            outputs: [S, columns] float32, of the model.
            targets: of the same nodes.
        """

    def weight(self, targets: Tensor) -> float:
        """Returns the weight that these nodes have together in the mean loss of more nodes."""
        return float(len(targets))

    @abstractmethod
    def train_score(self, outputs: Tensor, targets: Tensor) -> tuple[float, float]:
        """Returns a numerator and a denominator of `train_metric`. Sums over minibatches may be
        divided."""

    @abstractmethod
    def tally(self) -> Tally:
        """Returns a tally without nodes."""

    @abstractmethod
    def predictions(self, outputs: Tensor) -> dict[str, Tensor]:
        """Returns the arrays of a prediction: one row per node of `outputs` [S, columns]."""

    def improves(self, score: float, best: float | None) -> bool:
        """Returns whether a score of `metric` is better than the best one before, if any."""
        if best is None:
            return True
        return score < best if self.metric.is_error else score > best
