"""Each task's choice, loss, scores and predictions, and its refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pyg_batchgnn.data import Dataset
from pyg_batchgnn.train.config import Metric, RanksConfig, TaskConfig, TaskKind, TaskLoss
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.node_tasks import ClassTask, LabelTask, ValueTask, node_task_of
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.tasks import NodeTask, Scoring

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


def test_the_task_can_be_named() -> None:
    floats, integers = torch.ones(NODES, 2), torch.arange(NODES)
    assert isinstance(node_task_of(dataset(floats, 0), TaskConfig(kind=TaskKind.LABELS)), LabelTask)
    found = node_task_of(dataset(integers, 0), TaskConfig(kind=TaskKind.VALUES, loss=TaskLoss.MAE))
    assert isinstance(found, ValueTask) and found.metric is Metric.MAE


@pytest.mark.parametrize(
    ("y", "options", "message"),
    [
        (
            torch.tensor([0, 1, -1, 0, -1, -1]),
            {},
            "six: 1 of 3 training nodes and 2 of 3 validation nodes have no",
        ),
        (
            torch.tensor([[0, 1], [1, -1], *4 * [[1, 1]]]),
            {},
            "six: 1 of 3 training nodes have no label .'y' is -1",
        ),
        (
            torch.tensor([0, 1.0, float("nan"), 1, 1, 1]),
            {},
            "1 of 3 training nodes have no label .'y' is NaN",
        ),
        (
            torch.tensor([0, 2, 1, 0, 1, 1]),
            {"kind": TaskKind.LABELS},
            "hold 2, but a task that predicts labels",
        ),
        (torch.ones(NODES, 2).long(), {"kind": TaskKind.CLASSES}, r"'y' are int64 \[6, 2\], but classes are"),
        (torch.ones(NODES, 2, 2), {}, r"'y' are float32 \[6, 2, 2\], but values are"),
        (torch.ones(NODES, 2, 2).long(), {}, r"'y' are int64 \[6, 2, 2\], but labels are"),
        (torch.arange(NODES), {"metric": Metric.ROC_AUC}, "predicts classes has accuracy, macro_f1"),
        (torch.ones(NODES), {"metric": Metric.ACCURACY}, "predicts values has mae, rmse"),
        (torch.arange(NODES), {"class_weights": (1.0, 2.0)}, "has 2 numbers, but there are 6 classes"),
        (torch.ones(NODES, 3).long(), {"class_weights": (1.0,)}, "has 1 numbers, but there are 3 labels"),
        (torch.ones(NODES), {"class_weights": "balanced"}, "six has values, not classes"),
        (torch.arange(NODES), {"loss": TaskLoss.MSE}, "task.loss is mse, but a task that predicts classes"),
        (torch.ones(NODES, 2).long(), {"loss": TaskLoss.MAE}, "loss is mae, .* predicts labels"),
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
