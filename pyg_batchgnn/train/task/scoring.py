"""The sums of an evaluation: the loss and the tally of the metrics."""

from __future__ import annotations

import math
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
        count: the number of nodes or links.
        not_finite: the number of those with an output that is not finite.
    """

    loss: float
    scores: dict[Metric, float]
    count: int
    not_finite: int

    @classmethod
    def of(cls, loss: float, scores: dict[Metric, float], count: float, not_finite: float) -> Evaluation:
        """Makes the result of some outputs.

        If an output or the loss is not finite, neither loss nor metrics say anything: metrics are
        NaN then, and so is a finite loss.
        """
        if not_finite or not math.isfinite(loss):
            loss = math.nan if math.isfinite(loss) else loss
            scores = dict.fromkeys(scores, math.nan)
        return cls(loss, scores, int(count), int(not_finite))

    @property
    def is_finite(self) -> bool:
        """True if the outputs and the loss are finite."""
        return math.isfinite(self.loss)

    def problem(self, unit: str) -> str:
        """Returns what is not finite, as a part of a sentence. ``unit``: "nodes" or "links"."""
        if not self.not_finite:
            return f"the loss is {self.loss}"
        return (
            f"outputs of {self.not_finite:,} of {self.count:,} {unit} are not finite, the loss is {self.loss}"
        )

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
        self._count = self._not_finite = 0

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
        self._count += len(targets)
        self._not_finite += count_not_finite(outputs)
        weight = self._task.weight(targets)
        self._loss += self._task.loss(outputs, targets).item() * weight
        self._weight += weight

    def result(self, ranks: Ranks) -> Evaluation | None:
        """Returns loss and metrics of the nodes of all ranks, or None if there are none;
        collective."""
        sums = ranks.table([self._loss, self._weight, self._count, self._not_finite]).sum(dim=0)
        loss, weight, count, not_finite = sums.tolist()
        return Evaluation.of(loss / weight, self._tally.scores(ranks), count, not_finite) if weight else None


def count_not_finite(outputs: Tensor) -> int:
    """Returns the number of rows with an element that is not finite."""
    fine = outputs.isfinite()
    return int((~(fine if fine.dim() == 1 else fine.flatten(1).all(dim=1))).sum())
