"""Tasks, their losses and metrics, and the choice of a task from labels."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from pyg_batchgnn.data import Dataset
from pyg_batchgnn.train.config.choices import Metric, TaskKind, TaskLoss
from pyg_batchgnn.train.config.table import RanksConfig, TaskConfig
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.node_tasks import ClassTask, LabelTask, ValueTask, node_task_of
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.tasks import (
    NodeTask,
    Scoring,
    average_precision,
    hits,
    mean_rank,
    rank_counts,
    roc_auc,
)
from tests.support.tiers import examples

NODES = 6
LABELS = torch.tensor([[1, 0, 1], [0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 0, 0]])
OUTPUTS = torch.tensor([[2.0, -1, 1], [1, -2, -1], [-1, 3, 1], [-2, 1, -3], [1, 2, -1]])


def dataset(y: Tensor, *train: int) -> Dataset:
    """Returns six nodes; those that are not for training are for validation."""
    splits = {
        "train": torch.tensor(train, dtype=torch.int64),
        "val": torch.tensor([node for node in range(NODES) if node not in train], dtype=torch.int64),
    }
    return Dataset.homogeneous("six", NODES, torch.zeros(2, 0).long(), nodes={"y": y}, splits=splits)


def scores(task: NodeTask, outputs: Tensor, labels: Tensor) -> dict[Metric, float]:
    scoring = Scoring(task)
    for some, of in zip(outputs.split(2), labels.split(2), strict=True):
        scoring.add(some, of)
    found = scoring.result(Ranks.join(RanksConfig()))
    assert found is not None and found.loss == pytest.approx(task.loss(outputs, task.targets(labels)).item())
    return found.scores


@pytest.mark.parametrize(
    ("y", "task", "columns", "metric"),
    [
        (torch.arange(NODES), ClassTask, 6, Metric.ACCURACY),
        (torch.arange(NODES).view(-1, 1).short(), ClassTask, 6, Metric.ACCURACY),
        (torch.ones(NODES, 3).long(), LabelTask, 3, Metric.ROC_AUC),
        (torch.ones(NODES).bool(), LabelTask, 1, Metric.ROC_AUC),
        (torch.ones(NODES), ValueTask, 1, Metric.RMSE),
        (torch.ones(NODES, 2).double(), ValueTask, 2, Metric.RMSE),
    ],
)
def test_labels_tell_the_task(y: Tensor, task: type, columns: int, metric: Metric) -> None:
    found = node_task_of(dataset(y, 0, 1), TaskConfig())
    assert type(found) is task and (found.columns, found.metric) == (columns, metric)


@pytest.mark.parametrize(
    ("y", "options", "message"),
    [
        (torch.tensor([0, 1, -1, 0, -1, -1]), {}, "1 of 3 training nodes and 2 of 3 validation nodes"),
        (torch.tensor([0, 1.0, float("nan"), 1, 1, 1]), {}, "1 of 3 training nodes .*'y' is NaN"),
        (torch.tensor([0, 2, 1, 0, 1, 1]), {"kind": TaskKind.LABELS}, "hold 2, but a task that predicts"),
        (torch.ones(NODES, 2).long(), {"kind": TaskKind.CLASSES}, r"'y' are int64 \[6, 2\], but classes are"),
        (torch.ones(NODES, 2, 2), {}, r"'y' are float32 \[6, 2, 2\], but values are"),
        (torch.arange(NODES), {"metric": Metric.ROC_AUC}, "predicts classes has accuracy, macro_f1"),
        (torch.arange(NODES), {"class_weights": (1.0, 2.0)}, "has 2 numbers, but there are 6 classes"),
        (torch.ones(NODES), {"class_weights": "balanced"}, "six has values, not classes"),
        (torch.arange(NODES), {"loss": TaskLoss.MSE}, "task.loss is mse, but a task that predicts classes"),
    ],
)
def test_what_does_not_fit_is_refused(y: Tensor, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TrainError, match=message):
        node_task_of(dataset(y, 0, 1, 2), TaskConfig(**options))


def test_nodes_outside_of_the_splits_need_no_label() -> None:
    found = dataset(torch.tensor([0, 1, -1, 0, 1, 1]), 0)
    found.splits["val"] = torch.tensor([3])
    assert node_task_of(found, TaskConfig()).labelled(torch.tensor([1, -1])).tolist() == [True, False]


def test_classes() -> None:
    task = ClassTask(4, Metric.ACCURACY)
    labels, found = torch.tensor([0, 2, 1, 1, 2, 0, 0]), torch.tensor([0, 2, 1, 0, 3, 0, 2])
    outputs = F.one_hot(found, 4).float()
    # Both values are scikit-learn's.
    assert scores(task, outputs, labels) == pytest.approx({"accuracy": 4 / 7, "macro_f1": 0.4583333333333333})
    assert task.train_score(outputs, labels) == (4.0, 7.0)
    assert task.loss(outputs, labels).equal(F.cross_entropy(outputs, labels))
    assert task.predictions(outputs)["predictions"].equal(found)


def test_labels() -> None:
    task = LabelTask(3, Metric.ROC_AUC)
    expected = {
        Metric.ROC_AUC: 0.75,
        Metric.AVERAGE_PRECISION: 0.7129629629629629,
        Metric.MICRO_F1: 0.6666666666666666,
        Metric.MACRO_F1: 0.6555555555555556,
    }  # scikit-learn's values
    assert scores(task, OUTPUTS, LABELS) == pytest.approx(expected)
    score, score_of = task.train_score(OUTPUTS, task.targets(LABELS))
    assert score / score_of == pytest.approx(expected[Metric.MICRO_F1])
    by_hand = -(LABELS * OUTPUTS.sigmoid().log() + (1 - LABELS) * (-OUTPUTS).sigmoid().log()).mean()
    torch.testing.assert_close(task.loss(OUTPUTS, task.targets(LABELS)), by_hand)
    assert task.predictions(OUTPUTS)["predictions"].dtype is torch.uint8


def test_a_label_that_all_nodes_have_counts_for_no_ranking() -> None:
    labels = LABELS.clone()
    labels[:, 0] = 1
    both = scores(LabelTask(3, Metric.ROC_AUC), OUTPUTS, labels)
    rest = scores(LabelTask(2, Metric.ROC_AUC), OUTPUTS[:, 1:], labels[:, 1:])
    assert both[Metric.ROC_AUC] == rest[Metric.ROC_AUC]
    assert Metric.ROC_AUC not in scores(LabelTask(1, Metric.ROC_AUC), OUTPUTS[:, :1], labels[:, :1])


@pytest.mark.parametrize(("loss", "by_hand"), [(TaskLoss.MSE, F.mse_loss), (TaskLoss.MAE, F.l1_loss)])
def test_values(loss: TaskLoss, by_hand: Any) -> None:
    task = ValueTask((3,), Metric.MAE, loss)
    errors = (OUTPUTS - LABELS).double()
    expected = {Metric.MAE: errors.abs().mean().item(), Metric.RMSE: errors.square().mean().sqrt().item()}
    assert scores(task, OUTPUTS, LABELS) == pytest.approx(expected)
    assert task.loss(OUTPUTS, task.targets(LABELS)).equal(by_hand(OUTPUTS, LABELS.float()))
    assert ValueTask((), Metric.MAE, loss).predictions(OUTPUTS[:, :1])["predictions"].shape == (5,)
    assert task.improves(1.0, 2.0) and not task.improves(2.0, 1.0) and task.improves(9.0, None)


def test_class_weights() -> None:
    y = torch.tensor([0, 0, 0, 1, 2, 2])
    balanced = node_task_of(dataset(y, *range(NODES)), TaskConfig(class_weights="balanced"))
    outputs, weights = torch.randn(NODES, 3), torch.tensor([2 / 3, 2.0, 1.0])  # scikit-learn's
    losses = F.cross_entropy(outputs, y, reduction="none")
    torch.testing.assert_close(balanced.loss(outputs, y), (losses * weights[y]).sum() / weights[y].sum())
    assert balanced.weight(y) == pytest.approx(float(weights[y].sum()))
    given = node_task_of(dataset(y, 0), TaskConfig(class_weights=(1.0, 2.0, 3.0)))
    assert given.weight(y) == 3 + 2 + 6


def test_weights_of_labels() -> None:
    y = torch.cat([LABELS, torch.zeros(1, 3).long()])
    task = node_task_of(dataset(y, *range(NODES)), TaskConfig(class_weights="balanced"))
    outputs, targets = torch.randn(NODES, 3), y.bool()
    positive = torch.tensor([3.0, 2, 2])
    losses = F.binary_cross_entropy_with_logits(outputs, y.float(), reduction="none")
    by_hand = torch.where(targets, losses * (NODES - positive) / positive, losses).mean()
    torch.testing.assert_close(task.loss(outputs, targets), by_hand)
    assert task.weight(targets) == NODES


#: Few distinct scores, so that many are equal.
nodes = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=40)


def as_tensors(found: list[tuple[int, bool]]) -> tuple[Tensor, Tensor]:
    scores, positive = zip(*found, strict=True)
    return torch.tensor(scores, dtype=torch.float32), torch.tensor(positive)


@given(nodes)
def test_roc_auc_is_the_share_of_pairs_in_the_right_order(found: list[tuple[int, bool]]) -> None:
    pairs = [(a > b) + 0.5 * (a == b) for a, is_a in found for b, is_b in found if is_a and not is_b]
    area = roc_auc(*as_tensors(found))
    assert area == (pytest.approx(sum(pairs) / len(pairs)) if pairs else None)


@given(nodes)
def test_average_precision_is_the_mean_over_positive_nodes(found: list[tuple[int, bool]]) -> None:
    positive = [score for score, hit in found if hit]
    value = average_precision(*as_tensors(found))
    if not positive:
        assert value is None
        return
    at_or_above = [[hit for other, hit in found if other >= score] for score in positive]
    assert value == pytest.approx(sum(sum(hits) / len(hits) for hits in at_or_above) / len(positive))


@given(nodes, st.integers(0, 39))
def test_a_nan_among_the_scores_makes_the_measure_nan(found: list[tuple[int, bool]], place: int) -> None:
    scores, positive = as_tensors(found)
    known = roc_auc(scores, positive), average_precision(scores, positive)
    scores[place % len(scores)] = math.nan
    for before, after in zip(
        known, (roc_auc(scores, positive), average_precision(scores, positive)), strict=True
    ):
        assert after is None if before is None else after is not None and math.isnan(after)


NAN, INF = math.nan, math.inf
#: Scores with many equal ones, and some that are not finite.
SCORES = st.one_of(
    st.integers(-3, 3).map(float), st.integers(-3, 3).map(float), st.sampled_from([NAN, INF, -INF])
)


def is_above(negative: float, link: float) -> bool:
    """Returns whether a negative is ranked before a link, whatever the order of equal scores."""
    if math.isnan(negative) or math.isnan(link):
        return True
    return negative > link or (negative == link and math.isinf(link))


def slow_rank(link: float, negatives: list[float]) -> float:
    """Returns the mean of the rank before and the rank behind all negatives of the same score."""
    first = 1 + sum(is_above(negative, link) for negative in negatives)
    last = 1 + sum(is_above(negative, link) or negative == link for negative in negatives)
    return (first + last) / 2


def hits_of_list(links: list[float], negatives: list[float], k: int) -> list[bool]:
    if len(negatives) < k:
        return [True] * len(links)
    limit = sorted((INF if math.isnan(one) else one for one in negatives), reverse=True)[k - 1]
    return [link > limit for link in links]


def equal(found: Tensor, wanted: list[float] | list[bool]) -> bool:
    return found.tolist() == wanted


@examples(80)
@given(st.integers(0, 6).flatmap(lambda k: st.lists(st.lists(SCORES, min_size=k + 1, max_size=k + 1))))
def test_ranks_among_negatives_of_each_link(rows: list[list[float]]) -> None:
    links = [row[0] for row in rows]
    negatives = [row[1:] for row in rows]
    width = len(negatives[0]) if rows else 0
    counts = rank_counts(torch.tensor(links), torch.tensor(negatives).view(len(rows), width))
    ranks = [slow_rank(*pair) for pair in zip(links, negatives, strict=True)]
    assert equal(mean_rank(*counts), ranks)
    for k in (1, 2, 3):
        assert equal(hits(*counts, k, True), [rank <= k for rank in ranks])


@examples(80)
@given(st.lists(SCORES), st.lists(SCORES))
def test_ranks_among_the_same_negatives(links: list[float], negatives: list[float]) -> None:
    counts = rank_counts(torch.tensor(links), torch.tensor(negatives))
    assert equal(mean_rank(*counts), [slow_rank(link, negatives) for link in links])
    for k in (1, 2, 5):
        assert equal(hits(*counts, k, False), hits_of_list(links, negatives, k))
