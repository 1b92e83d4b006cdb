"""The interface of a task, its loss and metrics, and the sums of an evaluation."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pyg_batchgnn.train.config.choices import Metric
from pyg_batchgnn.train.ranks import Ranks


class Task(ABC):
    """What a model learns to predict, from minibatches."""

    metrics: ClassVar[tuple[Metric, ...]]  # the metrics of an evaluation, the default first
    train_metric: ClassVar[Metric]  # the metric of training minibatches
    unit: str  # "nodes", "edges" or "links"
    metric: Metric  # chooses the best epoch
    columns: int  # columns of the model's output
    loss_label: str  # the loss and its unit, for plots

    @property
    @abstractmethod
    def described(self) -> str:
        """The task for people, such as "16 classes"."""

    @abstractmethod
    def targets(self, labels: Tensor) -> Tensor:
        """Returns a minibatch's targets, in the form that `loss` takes. ``labels``: [S, ...]."""

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Returns the mean loss over at least one target. ``outputs``: [S, ...] float32."""

    def weight(self, targets: Tensor) -> float:
        """Returns the weight of the targets in a mean over more: by default their number."""
        return float(len(targets))

    @abstractmethod
    def train_score(self, outputs: Tensor, targets: Tensor) -> tuple[float, float]:
        """Returns numerator and denominator of `train_metric`; each is summed over minibatches."""

    def improves(self, score: float, best: float | None) -> bool:
        """Returns True if a finite ``score`` of `metric` is better than ``best``, if any."""
        if not is_finite(score):
            return False
        if best is None or not is_finite(best):
            return True
        return score < best if self.metric.is_error else score > best


class Tally(ABC):
    """The predictions of an evaluation so far, as its metrics need them."""

    @abstractmethod
    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Adds the nodes of a minibatch; arguments as in `NodeTask.loss`."""

    @abstractmethod
    def scores(self, ranks: Ranks) -> dict[Metric, float]:
        """Returns the metrics over all ranks' nodes, of which there are some; collective."""


class NodeTask(Task):
    """A prediction for each node or edge. Its labels are rows of the attribute "y"."""

    unit = "nodes"

    @abstractmethod
    def labelled(self, labels: Tensor) -> Tensor:
        """Returns [S] bool: True if a node has a label. ``labels``: [S, ...]."""

    @abstractmethod
    def tally(self) -> Tally:
        """Returns an empty tally."""

    @abstractmethod
    def predictions(self, outputs: Tensor) -> dict[str, Tensor]:
        """Returns the arrays to write, by name, one row per node. ``outputs``: [S, columns]."""


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation: NaN in loss and scores if an output is not finite."""

    loss: float  # the mean over the nodes, weighted as in training
    scores: dict[Metric, float]  # by metric; absent if a metric is not defined for these nodes
    count: int  # nodes, edges or links
    not_finite: int  # how many have an output that is not finite

    @classmethod
    def of(cls, loss: float, scores: dict[Metric, float], count: float, not_finite: float) -> Evaluation:
        if not_finite or not is_finite(loss):
            loss = math.nan if is_finite(loss) else loss
            scores = dict.fromkeys(scores, math.nan)
        return cls(loss, scores, int(count), int(not_finite))

    @property
    def is_finite(self) -> bool:
        return is_finite(self.loss)

    def problem(self, unit: str) -> str:
        """Returns what is not finite, as part of a sentence. ``unit``: "nodes", for example."""
        if not self.not_finite:
            return f"the loss is {self.loss}"
        return (
            f"outputs of {self.not_finite:,} of {self.count:,} {unit} are not finite, the loss is {self.loss}"
        )

    def to_dict(self) -> dict[str, float]:
        return {"loss": self.loss, **{metric.value: score for metric, score in self.scores.items()}}


class Scoring:
    """Adds up loss and metrics over the labelled nodes of minibatches."""

    def __init__(self, task: NodeTask) -> None:
        self._task = task
        self._tally = task.tally()
        self._loss = self._weight = 0.0
        self._count = self._not_finite = 0

    def add(self, outputs: Tensor, labels: Tensor) -> None:
        """Adds nodes, [S, ...] outputs and labels; nodes without a label are left out."""
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
        sums = ranks.table([self._loss, self._weight, self._count, self._not_finite]).sum(dim=0)
        loss, weight, count, not_finite = sums.tolist()
        return Evaluation.of(loss / weight, self._tally.scores(ranks), count, not_finite) if weight else None


# What is not finite ###############################################################################


def finite_rows(values: Tensor) -> Tensor:
    """Returns [n] bool: True for rows whose numbers all are finite. ``values``: [n, ...]."""
    fine = values.isfinite()
    return fine.flatten(1).all(dim=1) if fine.dim() > 1 else fine


def count_not_finite(outputs: Tensor) -> int:
    return int((~finite_rows(outputs)).sum())


def is_finite(*numbers: float) -> bool:
    return all(map(math.isfinite, numbers))


def for_json(scores: dict[str, float] | None) -> dict[str, float | None] | None:
    """Returns scores as JSON values, which know neither NaN nor infinity."""
    return None if scores is None else {name: one if is_finite(one) else None for name, one in scores.items()}


# Metrics ##########################################################################################


def roc_auc(scores: Tensor, positive: Tensor) -> float | None:
    """Returns the area under the ROC curve of one label, as scikit-learn: the probability that a
    positive node scores higher than a negative one, where equal scores count half. None unless
    there are both, NaN if a score is NaN. ``scores``: [n] floating-point. ``positive``: [n] bool.

    >>> roc_auc(torch.tensor([0.1, 0.7, 0.8]), torch.tensor([False, True, False]))
    0.5
    """
    true, false = _curve(scores, positive)
    if not len(true) or not true[-1] or not false[-1]:
        return None
    if scores.isnan().any():
        return math.nan
    area = torch.trapezoid(_from_zero(true), _from_zero(false))
    return float(area / (true[-1] * false[-1]))


def average_precision(scores: Tensor, positive: Tensor) -> float | None:
    """Returns the average precision of one label, as scikit-learn: the mean of precision over
    recall's steps. None without positive nodes, NaN if a score is NaN. Arguments as in `roc_auc`.

    >>> average_precision(torch.tensor([0.1, 0.7, 0.8]), torch.tensor([False, True, False]))
    0.5
    """
    true, false = _curve(scores, positive)
    if not len(true) or not true[-1]:
        return None
    if scores.isnan().any():
        return math.nan
    precision = true / (true + false)
    return float((precision * _from_zero(true).diff()).sum() / true[-1])


#: The K of each metric Hits@K.
HITS = {one: int(one.value.partition("@")[2]) for one in Metric if one.value.startswith("hits@")}


def rank_counts(links: Tensor, negatives: Tensor) -> tuple[Tensor, Tensor]:
    """Returns, [n] int64 each, how many negatives score higher than each link, and how many at
    least as high. ``links``: [n] scores. ``negatives``: [n, k], each link's own, or [m] for all.

    Scores that are not finite never help a link. A NaN, of the link or of a negative, counts as a
    negative with a higher score. Infinite scores compare as numbers do: a negative of minus
    infinity, as of a masked candidate, lies below every finite score. But where link and negative
    have the same infinite score, the negative counts as higher. OGB's evaluator defines the ranks.
    """
    if negatives.dim() == 2:
        own = links.unsqueeze(1)
        at_least = ~(negatives < own)
        above = at_least & ~((negatives == own) & own.isfinite())
        return above.sum(dim=1), at_least.sum(dim=1)
    ordered = negatives.masked_fill(negatives.isnan(), math.inf).sort().values
    below, up_to = (torch.searchsorted(ordered, links, right=right) for right in (False, True))
    below = torch.where(links.isnan(), 0, below)
    return len(ordered) - torch.where(links.isfinite(), up_to, below), len(ordered) - below


def mean_rank(above: Tensor, at_least: Tensor) -> Tensor:
    """Returns [n] float64, the rank from 1; among equal scores the mean of best and worst.
    ``above``, ``at_least``: of `rank_counts`."""
    return 0.5 * (above + at_least).double() + 1.0


def hits(above: Tensor, at_least: Tensor, k: int, own: bool) -> Tensor:
    """Returns [n] bool. With ``own`` negatives: whether a link's rank is at most k. Else: whether
    the link scores above the k-th highest negative. ``above``, ``at_least``: of `rank_counts`."""
    return mean_rank(above, at_least) <= k if own else at_least < k


def f1_score(true: Tensor, false: Tensor, missed: Tensor) -> Tensor:
    """Returns [C] float64, the F1 score of each class or label; 0 where all counts are 0.
    Arguments: [C] counts of true positives, false positives and false negatives.

    >>> f1_score(torch.tensor([2, 0]), torch.tensor([1, 0]), torch.tensor([1, 0]))
    tensor([0.6667, 0.0000], dtype=torch.float64)
    """
    twice = 2 * true.double()
    return twice / (twice + false + missed).clamp(min=1)


def _curve(scores: Tensor, positive: Tensor) -> tuple[Tensor, Tensor]:
    ordered, order = scores.sort(descending=True)
    hits = positive[order]
    last = torch.ones(len(ordered), dtype=torch.bool)
    last[:-1] = ordered[1:] != ordered[:-1]
    true = hits.cumsum(0)[last]
    seen = last.nonzero()[:, 0] + 1
    return true.double(), (seen - true).double()


def _from_zero(counts: Tensor) -> Tensor:
    return torch.cat([counts.new_zeros(1), counts])
