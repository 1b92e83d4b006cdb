"""The sums of an evaluation: the loss and the tally of the metrics."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from pyg_batchgnn.train.config import Metric
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.task.node_task import NodeTask


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation.

    Attributes:
        loss: the mean over the nodes, weighed as in training.
        scores: the value of each metric. A metric that is not defined for these nodes is absent.
    """

    loss: float
    scores: dict[Metric, float]

    def to_dict(self) -> dict[str, float]:
        """Returns the JSON values: "loss", and each metric by its name."""
        return {"loss": self.loss, **{metric.value: score for metric, score in self.scores.items()}}


class Scoring:
    """The loss and the metrics of the nodes that have a label.

    Args:
        task: of the model.
    """

    def __init__(self, task: NodeTask) -> None:
        self._task = task
        self._tally = task.tally()
        self._loss = self._weight = 0.0

    def add(self, outputs: Tensor, labels: Tensor) -> None:
        """Adds nodes. Those without a label are left out.

        Args:
            outputs: [S, columns] float32, of the model.
            labels: [S, ...], the nodes' rows of the labels "y".
        """
        known = self._task.labelled(labels)
        outputs, targets = outputs[known], self._task.targets(labels[known])
        if not len(targets):
            return
        self._tally.add(outputs, targets)
        weight = self._task.weight(targets)
        self._loss += self._task.loss(outputs, targets).item() * weight
        self._weight += weight

    def result(self, ranks: Ranks) -> Evaluation | None:
        """Returns loss and metrics of the nodes of all ranks, or None if there are none;
        collective."""
        loss, weight = ranks.table([self._loss, self._weight]).sum(dim=0).tolist()
        return Evaluation(loss / weight, self._tally.scores(ranks)) if weight else None
