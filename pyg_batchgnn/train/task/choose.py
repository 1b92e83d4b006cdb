"""The choice of a run's task from its configuration and the labels of its data set."""

from __future__ import annotations

from torch import Tensor

from pyg_batchgnn.data import Dataset, class_numbers
from pyg_batchgnn.train.config import Metric, TaskConfig, TaskKind, TaskLoss
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.task.class_task import ClassTask
from pyg_batchgnn.train.task.class_weights import class_weights, label_weights
from pyg_batchgnn.train.task.label_task import LabelTask
from pyg_batchgnn.train.task.labels_check import check_binary, check_labelled
from pyg_batchgnn.train.task.link_task import LinkTask
from pyg_batchgnn.train.task.node_task import NodeTask
from pyg_batchgnn.train.task.predicted import PredictedNodes
from pyg_batchgnn.train.task.task import Task
from pyg_batchgnn.train.task.value_task import ValueTask

#: The metrics of each kind of task, by the name of the kind.
_METRICS = {
    TaskKind.CLASSES.value: ClassTask.metrics,
    TaskKind.LABELS.value: LabelTask.metrics,
    TaskKind.VALUES.value: ValueTask.metrics,
    TaskKind.LINKS.value: LinkTask.metrics,
}


def task_of(dataset: Dataset, config: TaskConfig, hidden: int) -> Task:
    """Returns the task of a run.

    Args:
        dataset: of the run.
        config: of the task.
        hidden: columns of a node's row, from which links are scored.

    Raises:
        TrainError: as `node_task_of`, and for a loss or a metric that links do not have.
    """
    if config.kind is not TaskKind.LINKS:
        return node_task_of(dataset, config)
    loss = config.loss or TaskLoss.BCE
    if loss not in (TaskLoss.BCE, TaskLoss.BPR):
        raise TrainError(f"task.loss is {loss.value}, but a task that predicts links has bce and bpr")
    return LinkTask(hidden, _metric(config, LinkTask.metrics, Metric.MRR, "links"), loss)


def node_task_of(dataset: Dataset, config: TaskConfig) -> NodeTask:
    """Returns the task of learning the labels "y" of a data set's nodes.

    Raises:
        TrainError: the labels are missing or do not fit the task, a node of a split has no label,
            or an option does not fit the task.
    """
    nodes = PredictedNodes.of(dataset, config)
    y = nodes.labels
    kind = _kind(nodes, y) if config.kind is TaskKind.AUTO else config.kind
    make = {
        TaskKind.CLASSES: _class_task,
        TaskKind.LABELS: _label_task,
        TaskKind.VALUES: _value_task,
    }[kind]
    if config.loss is not None and kind is not TaskKind.VALUES:
        raise TrainError(
            f"task.loss is {config.loss.value}, but a task that predicts {kind.value} has a loss of its own; "
            "leave it out"
        )
    task = make(nodes, y, config)
    check_labelled(nodes, y, task)
    return task


def _class_task(nodes: PredictedNodes, y: Tensor, config: TaskConfig) -> NodeTask:
    if class_numbers(nodes.tables) is None:
        raise _unfit(nodes, y, "classes are integers [N]")
    metric = _metric(config, ClassTask.metrics, Metric.ACCURACY, "classes")
    weights = class_weights(config.class_weights, y[nodes.split("train")], nodes.num_classes)
    return ClassTask(nodes.num_classes, metric, weights)


def _label_task(nodes: PredictedNodes, y: Tensor, config: TaskConfig) -> NodeTask:
    if y.dim() > 2 or y.is_complex():
        raise _unfit(nodes, y, "labels are zeros and ones [N, C]")
    check_binary(nodes, y)
    metric = _metric(config, LabelTask.metrics, Metric.ROC_AUC, "labels")
    labels = y.shape[1] if y.dim() == 2 else 1
    weights = label_weights(config.class_weights, y[nodes.split("train")], labels)
    return LabelTask(labels, metric, weights)


def _value_task(nodes: PredictedNodes, y: Tensor, config: TaskConfig) -> NodeTask:
    if y.dim() > 2 or y.is_complex():
        raise _unfit(nodes, y, "values are numbers [N] or [N, C]")
    if config.class_weights is not None:
        raise TrainError(f"task.class_weights is given, but {nodes.dataset} has values, not classes, in 'y'")
    loss = config.loss or TaskLoss.MSE
    if loss not in (TaskLoss.MSE, TaskLoss.MAE):
        raise TrainError(f"task.loss is {loss.value}, but a task that predicts values has mse and mae")
    default = Metric.RMSE if loss is TaskLoss.MSE else Metric.MAE
    return ValueTask(tuple(y.shape[1:]), _metric(config, ValueTask.metrics, default, "values"), loss)


def _kind(nodes: PredictedNodes, y: Tensor) -> TaskKind:
    """Returns the task that fits the type and shape of the labels."""
    if class_numbers(nodes.tables) is not None:
        return TaskKind.CLASSES
    return TaskKind.VALUES if y.is_floating_point() else TaskKind.LABELS


def _metric(config: TaskConfig, known: tuple[Metric, ...], default: Metric, what: str) -> Metric:
    metric = config.metric or default
    if metric not in known:
        names = ", ".join(one.value for one in known)
        others = [kind for kind, has in _METRICS.items() if metric in has]
        option = "give one of them" if not others else f"or choose --task {' or '.join(others)}"
        hint = ", which takes 0 and 1 in 'y' as a label" if others == ["labels"] else ""
        raise TrainError(
            f"task.metric is {metric.value}, but a task that predicts {what} has {names}; {option}{hint}"
        )
    return metric


def _unfit(nodes: PredictedNodes, y: Tensor, wanted: str) -> TrainError:
    found = f"{str(y.dtype).removeprefix('torch.')} {list(y.shape)}"
    return TrainError(
        f"{nodes.dataset}: the node labels 'y' are {found}, but {wanted}; choose another --task"
    )
