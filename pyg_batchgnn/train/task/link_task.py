"""The task of predicting links: pairs of nodes that are joined score higher than others."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from pyg_batchgnn.train.config import Metric, TaskLoss
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.task.link_metrics import RankCounts
from pyg_batchgnn.train.task.scoring import Evaluation, count_not_finite
from pyg_batchgnn.train.task.task import Task

#: The K of each metric Hits@K.
HITS = {
    Metric.HITS_1: 1,
    Metric.HITS_3: 3,
    Metric.HITS_10: 10,
    Metric.HITS_20: 20,
    Metric.HITS_50: 50,
    Metric.HITS_100: 100,
}


class LinkTask(Task):
    """Predicts links from the scores of pairs.

    A minibatch has P links and, behind them, K negatives for each link, in the order of the links.

    - Binary cross entropy tells links from negatives.
    - BPR compares each link with its own negatives (Rendle et al., section 4).

    Args:
        columns: the number of columns of a node's row.
        metric: decides which epoch is the best.
        loss: BCE or BPR.
    """

    metrics: ClassVar[tuple[Metric, ...]] = (Metric.MRR, *HITS)
    train_metric: ClassVar[Metric] = Metric.ACCURACY
    unit: ClassVar[str] = "links"

    def __init__(self, columns: int, metric: Metric, loss: TaskLoss) -> None:
        self.columns = columns
        self.metric = metric
        self.is_pairwise = loss is TaskLoss.BPR
        self.loss_label = "BPR (nats per comparison)" if self.is_pairwise else "binary cross entropy (nats)"

    @property
    def described(self) -> str:
        return "BPR" if self.is_pairwise else "binary cross entropy"

    def targets(self, labels: Tensor) -> Tensor:
        """Returns [S] bool, True for links and False for negatives."""
        return labels.bool()

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self.is_pairwise:
            return F.softplus(-_margins(outputs, targets)).mean()
        return F.binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype))

    def weight(self, targets: Tensor) -> float:
        return float((~targets).sum() if self.is_pairwise else len(targets))

    def train_score(self, outputs: Tensor, targets: Tensor) -> tuple[float, float]:
        right = _margins(outputs, targets) > 0 if self.is_pairwise else (outputs > 0) == targets
        return float(right.sum()), float(right.numel())

    def ranking(self) -> LinkRanking:
        """Returns a ranking without links."""
        return LinkRanking(self)


def _margins(outputs: Tensor, targets: Tensor) -> Tensor:
    """Returns [P, K], how much higher each link scores than each of its negatives."""
    links = outputs[targets]
    return links.unsqueeze(1) - outputs[~targets].view(len(links), -1)


class LinkRanking:
    """The sums of an evaluation of links."""

    def __init__(self, task: LinkTask) -> None:
        self._task = task
        self._loss = self._weight = self._not_finite = 0.0
        self._sums = torch.zeros(2 + len(HITS), dtype=torch.float64)

    def add_with_own(self, links: Tensor, negatives: Tensor) -> None:
        """Adds links that are ranked among negatives of their own.

        Args:
            links: [n] scores.
            negatives: [n, k] scores.
        """
        counts = RankCounts.among_own(links, negatives)
        self._not_finite += count_not_finite(torch.cat([links.unsqueeze(1), negatives], dim=1))
        self._add(counts, counts.hits_among_own)
        self._add_loss(links, negatives)

    def add_with_shared(self, links: Tensor, negatives: Tensor, first: int) -> None:
        """Adds links that are ranked among the same negatives.

        In the loss, link i is compared with negative i, and with the first one again when there are
        no more.

        Args:
            links: [n] scores.
            negatives: [m] scores.
            first: the number of the first link in its split.
        """
        counts = RankCounts.among_all(links, negatives)
        self._not_finite += count_not_finite(links) if negatives.isfinite().all() else len(links)
        self._add(counts, counts.hits_among_all)
        if len(negatives):
            own = negatives[torch.arange(first, first + len(links)) % len(negatives)]
            self._add_loss(links, own.unsqueeze(1))

    def result(self, ranks: Ranks) -> Evaluation | None:
        """Returns loss and metrics of the links of all ranks, or None if there are none;
        collective."""
        mine = [self._loss, self._weight, self._not_finite, *self._sums.tolist()]
        loss, weight, not_finite, count, reciprocal, *hits = ranks.table(mine).sum(dim=0).tolist()
        if not count:
            return None
        scores = {Metric.MRR: reciprocal / count}
        scores |= {metric: found / count for metric, found in zip(HITS, hits, strict=True)}
        return Evaluation.of(loss / max(weight, 1.0), scores, count, not_finite)

    def _add(self, counts: RankCounts, hits: Callable[[int], Tensor]) -> None:
        reached = [float(hits(k).sum()) for k in HITS.values()]
        found = [float(len(counts.above)), float(counts.reciprocal().sum()), *reached]
        self._sums += torch.tensor(found, dtype=torch.float64)

    def _add_loss(self, links: Tensor, negatives: Tensor) -> None:
        """Adds links [n] with as many negatives each, [n, k]."""
        outputs = torch.cat([links, negatives.reshape(-1)])
        targets = torch.arange(len(outputs)) < len(links)
        if weight := self._task.weight(targets):
            self._loss += float(self._task.loss(outputs, targets)) * weight
            self._weight += weight
