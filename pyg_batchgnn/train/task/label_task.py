"""The task of predicting any number of labels."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from pyg_batchgnn.train.config import Metric
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.task.metrics import average_precision, f1_score, roc_auc
from pyg_batchgnn.train.task.node_task import NodeTask, Tally

#: The elements of one label's scores that are exchanged between ranks at a time.
_ELEMENTS = 1 << 24


class LabelTask(NodeTask):
    """Predicts which of C labels a node has, with binary cross entropy.

    A node is predicted to have a label if its output is positive: a probability above one half.

    Args:
        labels: C.
        metric: decides which epoch is the best.
        weights: [C] float32, weights of the positive nodes of each label in the loss, or None.
    """

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric.ROC_AUC,
        Metric.AVERAGE_PRECISION,
        Metric.MICRO_F1,
        Metric.MACRO_F1,
    )
    train_metric: ClassVar[Metric] = Metric.MICRO_F1

    def __init__(self, labels: int, metric: Metric, weights: Tensor | None = None) -> None:
        self.columns = labels
        self.metric = metric
        self.loss_label = "binary cross entropy (nats per label)"
        self._weights = weights

    @property
    def described(self) -> str:
        return "1 label" if self.columns == 1 else f"{self.columns} labels"

    def targets(self, labels: Tensor) -> Tensor:
        """Returns [S, C] bool, True where a node has a label."""
        return labels.reshape(len(labels), self.columns) > 0

    def labelled(self, labels: Tensor) -> Tensor:
        """Returns [S] bool. A label of -1 or NaN is missing, and a node needs all of them."""
        return (labels.reshape(len(labels), self.columns) >= 0).all(dim=1)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(
            outputs, targets.to(outputs.dtype), pos_weight=self._weights
        )

    def train_score(self, outputs: Tensor, targets: Tensor) -> tuple[float, float]:
        true, false, missed = _counts(outputs, targets).sum(dim=1).tolist()
        return 2.0 * true, 2.0 * true + false + missed

    def tally(self) -> Tally:
        return _LabelTally(self.columns)

    def predictions(self, outputs: Tensor) -> dict[str, Tensor]:
        return {"predictions": (outputs > 0).to(torch.uint8), "probabilities": outputs.sigmoid()}


class _LabelTally(Tally):
    """The outputs and targets of all nodes, as metrics of a ranking need them."""

    def __init__(self, labels: int) -> None:
        self._outputs = [torch.empty(0, labels)]
        self._targets = [torch.empty(0, labels, dtype=torch.bool)]

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        self._outputs.append(outputs)
        self._targets.append(targets)

    def scores(self, ranks: Ranks) -> dict[Metric, float]:
        outputs, targets = torch.cat(self._outputs), torch.cat(self._targets)
        counts = ranks.table(_counts(outputs, targets).flatten().tolist()).sum(dim=0).view(3, -1)
        total = int(ranks.table([len(outputs)]).sum())
        band = max(1, _ELEMENTS // max(1, total))
        areas, precisions = [], []
        for some_outputs, some_targets in zip(outputs.split(band, 1), targets.split(band, 1), strict=True):
            scores, positive = _of_all_ranks(some_outputs, ranks), _of_all_ranks(some_targets, ranks)
            for score, hit in zip(scores.unbind(1), positive.unbind(1), strict=True):
                areas.append(roc_auc(score, hit))
                precisions.append(average_precision(score, hit))
        found = {
            Metric.ROC_AUC: _mean(areas),
            Metric.AVERAGE_PRECISION: _mean(precisions),
            Metric.MICRO_F1: float(f1_score(*counts.sum(dim=1))),
            Metric.MACRO_F1: float(f1_score(*counts).mean()),
        }
        return {metric: score for metric, score in found.items() if score is not None}


def _counts(outputs: Tensor, targets: Tensor) -> Tensor:
    """Returns [3, C] int64: per label the nodes that were predicted to have it and have it, that
    were predicted to and do not, and that have it and were not predicted to."""
    found = outputs > 0
    return torch.stack([(found & targets).sum(0), (found & ~targets).sum(0), (~found & targets).sum(0)])


def _of_all_ranks(rows: Tensor, ranks: Ranks) -> Tensor:
    """Returns the rows of all ranks; collective."""
    return rows if ranks.is_alone else ranks.training.all_gather(rows.contiguous()).rows


def _mean(values: list[float | None]) -> float | None:
    """Returns the mean over labels for which the metric is defined; None if there is none."""
    defined = [value for value in values if value is not None]
    return sum(defined) / len(defined) if defined else None
