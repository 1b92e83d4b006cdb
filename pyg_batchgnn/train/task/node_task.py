"""The interface of a task on nodes: its metrics, and the form of its predictions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor

from pyg_batchgnn.train.config import Metric
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.task.task import Task


class Tally(ABC):
    """Predictions of an evaluation so far, in the form in which its metrics need them."""

    @abstractmethod
    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Adds the nodes of a minibatch, as `NodeTask.loss` takes them."""

    @abstractmethod
    def scores(self, ranks: Ranks) -> dict[Metric, float]:
        """Returns the metrics of the nodes of all ranks; collective. There is at least one node."""


class NodeTask(Task):
    """A prediction for each node. The labels of its minibatches are rows of the labels "y"."""

    unit: ClassVar[str] = "nodes"

    @abstractmethod
    def labelled(self, labels: Tensor) -> Tensor:
        """Returns [S] bool, whether each node has a label. Arguments are those of `targets`."""

    @abstractmethod
    def tally(self) -> Tally:
        """Returns a tally without nodes."""

    @abstractmethod
    def predictions(self, outputs: Tensor) -> dict[str, Tensor]:
        """Returns the arrays of a prediction: one row per node of `outputs` [S, columns]."""
