"""The tasks on nodes and edges (classes, labels, values), and the choice of a run's task."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from pyg_batchgnn.data import (
    EDGE_ID,
    REVERSE_ID,
    SPLITS,
    Dataset,
    EdgeSet,
    class_numbers,
    count_classes,
    narrow_class_numbers,
)
from pyg_batchgnn.train.config.choices import Metric, TaskKind, TaskLoss
from pyg_batchgnn.train.config.table import TaskConfig
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.link_tasks import LINK_LOSSES, LinkTask, PredictedLinks, named_relation
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.tasks import NodeTask, Tally, Task, average_precision, f1_score, finite_rows, roc_auc
from pyg_batchgnn.types import LABELS, Relation, stored_reverse


@dataclass(frozen=True, eq=False)
class PredictedNodes:
    """The nodes that a run predicts: one type."""

    dataset: str  # the data set's name, for messages
    node_type: str
    count: int  # the number N of nodes
    tables: Mapping[str, Tensor]  # attributes by name, the labels "y" included
    splits: Mapping[str, Tensor]  # original ids by split
    num_classes: int  # 0 if the labels are no classes
    unit: ClassVar[str] = "nodes"

    @classmethod
    def of(cls, dataset: Dataset, config: TaskConfig) -> PredictedNodes:
        nodes = dataset.nodes_of(_node_type(dataset, config.node_type))
        if LABELS not in nodes.tables:
            of_type = f" of type {nodes.name!r}" if dataset.has_names else ""
            raise TrainError(
                f"{dataset.name}: the node labels 'y'{of_type} are missing, but training needs them"
            )
        own = nodes.name, nodes.num_nodes, nodes.tables, nodes.splits, nodes.num_classes
        return cls(dataset.name, *own)

    @property
    def labels(self) -> Tensor:
        return self.tables[LABELS]

    def split(self, name: str) -> Tensor:
        """Returns [n] int64, the original ids of a split; empty if there is no such split."""
        return self.splits.get(name, torch.empty(0, dtype=torch.int64))


@dataclass(frozen=True, eq=False)
class PredictedEdges(PredictedNodes):
    """The edges that a run predicts: one relation, by edge ids. ``node_type`` is the targets'."""

    edges: EdgeSet
    unit: ClassVar[str] = "edges"

    @property
    def relation(self) -> Relation:
        return self.edges.relation

    @cached_property
    def index(self) -> Tensor:  # [2, E], which edges by destination are made into
        return self.edges.edge_index

    @classmethod
    def of(cls, dataset: Dataset, config: TaskConfig) -> PredictedEdges:
        relation = named_relation(dataset, config.edge_type, "task.edge_type")
        edges, name = dataset.edges_of(relation), f"{dataset.name}: the edges of {'-'.join(relation)}"
        if LABELS not in edges.tables:
            known = ["-".join(one.relation) for one in dataset.edge_sets if LABELS in one.tables]
            with_labels = f"those of {', '.join(known)} have some" if known else "no edges have some"
            raise TrainError(
                f"{name} have no labels 'y', which --task {config.kind.value} needs; {with_labels}"
            )
        splits = {split: one.tables[EDGE_ID] for split, one in edges.links.items() if EDGE_ID in one.tables}
        if len(splits) < len(edges.links):
            bare = next(split for split in edges.links if split not in splits)
            raise TrainError(f"{name}: the links of {bare} have no {EDGE_ID!r}, the edge that each one is")
        back = stored_reverse(dataset.schema, relation) if dataset.has_names else None
        if back is not None:
            one, other = edges.topology, dataset.edges_of(back).topology
            is_same = edges.num_edges == dataset.edges_of(back).num_edges
            if is_same and isinstance(one, Tensor) and isinstance(other, Tensor):
                is_same = bool((one == other.flip(0)).all())  # by destination it would take long
            if not is_same:
                raise TrainError(
                    f"{name} and their reverses in {'-'.join(back)} are not the same, edge by edge: write "
                    f"both in one order, or rename {back[1]}"
                )
        classes = edges.num_classes or count_classes(edges.tables)
        return cls(dataset.name, relation[2], edges.num_edges, edges.tables, splits, classes, edges)

    def loader_arguments(self, ids: Tensor, time_attr: str | None, is_named: bool) -> dict[str, Any]:
        """Returns the keyword arguments of a link loader for these edges. ``ids``: [n] int64 edge
        ids. ``is_named``: the loader reads a heterogeneous graph."""
        index, paired = self.index[:, ids].to(torch.int64), self.tables.get(REVERSE_ID)
        return {
            "edge_label_index": (self.relation, index) if is_named else index,
            "edge_label": self.labels[ids],
            "edge_label_time": None if time_attr is None else self.tables[time_attr].reshape(-1)[ids],
            "input_id": ids,
            "exclude_seed_edges": "edges" if paired is None else ("edges", paired.reshape(-1)),
        }


def predicted_of(dataset: Dataset, config: TaskConfig) -> PredictedNodes | PredictedLinks:
    if config.kind is TaskKind.LINKS:
        return PredictedLinks.of(dataset, config)
    return (PredictedEdges if config.kind.is_of_edges else PredictedNodes).of(dataset, config)


def _node_type(dataset: Dataset, wanted: str | None) -> str:
    types = dataset.schema.node_types
    if wanted is None:
        if len(types) == 1:
            return types[0]
        labelled = [one.name for one in dataset.node_sets if LABELS in one.tables]
        known = f"those with labels 'y' are {', '.join(labelled)}" if labelled else "none has labels 'y'"
        raise TrainError(
            f"{dataset.name} has the node types {', '.join(types)}: name the one to predict with "
            f"--node-type; {known}"
        )
    if not dataset.has_names:
        raise TrainError(
            f"task.node_type is {wanted}, but {dataset.name} is a homogeneous graph; leave --node-type out"
        )
    if wanted not in types:
        raise TrainError(f"task.node_type is {wanted}, but {dataset.name} has {', '.join(types)}")
    return wanted


Wanted: TypeAlias = Literal["balanced"] | tuple[float, ...] | None


def class_weights(wanted: Wanted, labels: Tensor, columns: int, what: str) -> Tensor | None:
    """Returns [C] float32, the weights in the loss: per class, or with ``what`` "labels" of the
    positive nodes of each label. None: all equal.

    ``wanted``: numbers, or "balanced". ``labels``: of the training nodes, [n] or [n, C].
    ``columns``: C. Balanced weights of classes are scikit-learn's: n / (C * nodes of the class).
    For a label: negative nodes / positive nodes. Raises `TrainError` if there are not C numbers.
    """
    if wanted is None:
        return None
    if wanted == "balanced" and what == "classes":
        counts = torch.bincount(labels.flatten().long().clamp(min=0), minlength=columns)
        return (len(labels) / (columns * counts.clamp(min=1).double())).float()
    if wanted == "balanced":
        positive = (labels.reshape(len(labels), columns) > 0).sum(dim=0)
        return ((len(labels) - positive).clamp(min=1).double() / positive.clamp(min=1)).float()
    if len(wanted) != columns:
        raise TrainError(
            f"task.class_weights has {len(wanted)} numbers, but there are {columns} {what}; "
            "give one number for each, or balanced"
        )
    return torch.tensor(wanted, dtype=torch.float32)


_ROWS_AT_A_TIME = 1 << 16
_NAMES = {"train": "training", "val": "validation", "test": "test"}


def check_labelled(nodes: PredictedNodes, y: Tensor, task: NodeTask) -> None:
    """Raises `TrainError` if a node of a split has no label. The message counts them by split."""
    found = []
    for name in SPLITS:
        split = nodes.split(name)
        pieces = split.split(_ROWS_AT_A_TIME)
        missing = len(split) - sum(int(task.labelled(y[piece]).sum()) for piece in pieces)
        if missing:
            found.append(f"{missing:,} of {len(split):,} {_NAMES[name]} {nodes.unit}")
    if found:
        absent = "NaN" if y.is_floating_point() else "-1"
        raise TrainError(
            f"{nodes.dataset}: {' and '.join(found)} have no label ('y' is {absent}); take them out of the "
            "splits, or label them"
        )


def check_binary(nodes: PredictedNodes, y: Tensor) -> None:
    if y.dtype is torch.bool:
        return
    for piece in y.split(_ROWS_AT_A_TIME):
        other = piece[((piece < 0) & (piece != -1)) | ((piece > 0) & (piece != 1))]
        if len(other):
            raise TrainError(
                f"{nodes.dataset}: the {nodes.unit[:-1]} labels 'y' hold {other[0].item()}, but a task that "
                "predicts labels needs 0 or 1 for each; choose another --task"
            )


class ClassTask(NodeTask):
    """Predicts one of C classes, with cross entropy. ``weights``: [C] float32, or None."""

    metrics: ClassVar[tuple[Metric, ...]] = (Metric.ACCURACY, Metric.MACRO_F1)
    train_metric: ClassVar[Metric] = Metric.ACCURACY

    def __init__(self, classes: int, metric: Metric, weights: Tensor | None = None) -> None:
        self.columns = classes
        self.metric = metric
        self.loss_label = "cross entropy (nats per node)"
        self._weights = weights

    @property
    def described(self) -> str:
        return f"{self.columns} classes"

    def targets(self, labels: Tensor) -> Tensor:
        numbers = class_numbers({LABELS: labels})
        assert numbers is not None, "`task_of` has checked the labels"
        return numbers

    def labelled(self, labels: Tensor) -> Tensor:
        return self.targets(labels) >= 0

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, self._weights)

    def weight(self, targets: Tensor) -> float:
        return float(len(targets) if self._weights is None else self._weights[targets].sum())

    def train_score(self, outputs: Tensor, targets: Tensor) -> tuple[float, float]:
        return float((outputs.argmax(dim=1) == targets).sum()), float(len(targets))

    def tally(self) -> Tally:
        return _ClassTally(self.columns)

    def predictions(self, outputs: Tensor) -> dict[str, Tensor]:
        return {"predictions": outputs.argmax(dim=1), "probabilities": outputs.softmax(dim=1)}


class _ClassTally(Tally):
    def __init__(self, classes: int) -> None:
        self._counts = torch.zeros(3, classes, dtype=torch.int64)

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        classes, found = self._counts.size(1), outputs.argmax(dim=1)
        is_right = found == targets
        counted = targets[is_right], found[~is_right], targets[~is_right]
        for row, of in zip(self._counts, counted, strict=True):
            row += torch.bincount(of, minlength=classes)

    def scores(self, ranks: Ranks) -> dict[Metric, float]:
        sums = ranks.table(self._counts.flatten().tolist()).sum(dim=0)
        true, false, missed = sums.view_as(self._counts)
        occurs = true + false + missed > 0
        return {
            Metric.ACCURACY: float(true.sum() / (true + missed).sum()),
            Metric.MACRO_F1: float(f1_score(true, false, missed)[occurs].mean()),
        }


#: Metrics of the ranking of nodes by one label's scores.
_RANKED = {Metric.ROC_AUC: roc_auc, Metric.AVERAGE_PRECISION: average_precision}
_ELEMENTS = 1 << 24  # The most scores that ranks exchange at a time.


class LabelTask(NodeTask):
    """Predicts which of C labels a node has, with binary cross entropy. A positive output, a
    probability above one half, predicts the label. ``weights``: [C] float32, of positive nodes."""

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
        return labels.reshape(len(labels), self.columns) > 0

    def labelled(self, labels: Tensor) -> Tensor:
        """Returns [S] bool: True if no label of the node is missing (-1 or NaN)."""
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
        ranked: dict[Metric, list[float]] = {}  # of the labels for which a metric is defined
        for pair in zip(outputs.split(band, 1), targets.split(band, 1), strict=True):
            every = (
                pair if ranks.is_alone else [ranks.training.all_gather(one.contiguous()).rows for one in pair]
            )
            for score, hit in zip(*(rows.unbind(1) for rows in every), strict=True):
                for metric, measure in _RANKED.items():
                    if (value := measure(score, hit)) is not None:
                        ranked.setdefault(metric, []).append(value)
        means = {metric: sum(values) / len(values) for metric, values in ranked.items()}
        micro, macro = f1_score(*counts.sum(dim=1)), f1_score(*counts).mean()
        return {**means, Metric.MICRO_F1: float(micro), Metric.MACRO_F1: float(macro)}


def _counts(outputs: Tensor, targets: Tensor) -> Tensor:
    """Returns [3, C] int64: true positives, false positives and false negatives of each label."""
    found = outputs > 0
    return torch.stack([(found & targets).sum(0), (found & ~targets).sum(0), (~found & targets).sum(0)])


class ValueTask(NodeTask):
    """Predicts one or several values, with the mean of squared or of absolute errors. ``shape``: of
    a node's values, () or (C,)."""

    metrics: ClassVar[tuple[Metric, ...]] = (Metric.MAE, Metric.RMSE)
    train_metric: ClassVar[Metric] = Metric.MAE

    def __init__(self, shape: tuple[int, ...], metric: Metric, loss: TaskLoss) -> None:
        self.columns = math.prod(shape)
        self.metric = metric
        self.loss_label = "mean squared error" if loss is TaskLoss.MSE else "mean absolute error"
        self._shape = shape
        self._loss = F.mse_loss if loss is TaskLoss.MSE else F.l1_loss

    @property
    def described(self) -> str:
        return f"{self.columns} value{'' if self.columns == 1 else 's'} per {self.unit[:-1]}"

    def targets(self, labels: Tensor) -> Tensor:
        return labels.reshape(len(labels), self.columns).float()

    def labelled(self, labels: Tensor) -> Tensor:
        """Returns [S] bool: True if all values of the node are finite."""
        return finite_rows(self.targets(labels))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self._loss(outputs, targets)

    def train_score(self, outputs: Tensor, targets: Tensor) -> tuple[float, float]:
        return float((outputs - targets).abs().sum(dtype=torch.float64)), float(targets.numel())

    def tally(self) -> Tally:
        return _ValueTally()

    def predictions(self, outputs: Tensor) -> dict[str, Tensor]:
        return {"predictions": outputs.reshape(len(outputs), *self._shape)}


class _ValueTally(Tally):
    def __init__(self) -> None:
        self._sums = [0.0, 0.0, 0.0]

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        errors = outputs.double() - targets.double()
        more = float(errors.abs().sum()), float(errors.square().sum()), float(errors.numel())
        self._sums = [a + b for a, b in zip(self._sums, more, strict=True)]

    def scores(self, ranks: Ranks) -> dict[Metric, float]:
        absolute, squared, count = ranks.table(self._sums).sum(dim=0).tolist()
        return {Metric.MAE: absolute / count, Metric.RMSE: math.sqrt(squared / count)}


_TASKS: Mapping[str, type[Task]]  # The tasks by the name of their kind.
_TASKS = {"classes": ClassTask, "labels": LabelTask, "values": ValueTask, TaskKind.LINKS.value: LinkTask}


def task_of(dataset: Dataset, config: TaskConfig, hidden: int) -> Task:
    if config.kind is not TaskKind.LINKS:
        return node_task_of(dataset, config)
    loss = config.loss or (TaskLoss.SOFTMAX if config.negatives == "in-batch" else TaskLoss.BCE)
    if loss not in LINK_LOSSES:
        raise TrainError(f"task.loss is {loss.value}, but links have {', '.join(LINK_LOSSES)}")
    return LinkTask(hidden, _metric(config, LinkTask.metrics, Metric.MRR, "links"), loss)


#: What labels each kind of task needs.
_FORMS = {
    TaskKind.CLASSES: "classes are integers [N]",
    TaskKind.LABELS: "labels are zeros and ones [N, C]",
    TaskKind.VALUES: "values are numbers [N] or [N, C]",
}


def node_task_of(dataset: Dataset, config: TaskConfig) -> NodeTask:
    """Returns the task of learning the labels "y" of nodes or edges. Raises `TrainError` if labels,
    loss, metric or weights do not fit the kind of task."""
    task: NodeTask
    nodes = predicted_of(dataset, config)
    assert isinstance(nodes, PredictedNodes), "not of links"
    y, kind, numbers = nodes.labels, config.kind, narrow_class_numbers(nodes.tables)
    if kind is TaskKind.EDGE_VALUES:
        kind = TaskKind.VALUES
    elif kind is TaskKind.EDGE_CLASSES:  # of two classes, a metric of labels tells them apart
        ranks = config.metric in LabelTask.metrics and config.metric not in ClassTask.metrics
        is_label = numbers is None or (ranks and nodes.num_classes <= 2)
        kind = TaskKind.LABELS if is_label and not y.is_floating_point() else TaskKind.CLASSES
    if kind is TaskKind.AUTO and numbers is not None and nodes.num_classes:
        kind = TaskKind.CLASSES
    elif kind is TaskKind.AUTO:  # integers that are all missing (-1) are those of a label
        kind = TaskKind.VALUES if y.is_floating_point() else TaskKind.LABELS
    if config.loss is not None and kind is not TaskKind.VALUES:
        raise TrainError(
            f"task.loss is {config.loss.value}, but a task that predicts {kind.value} has a loss of its own; "
            "leave it out"
        )
    if (numbers is None) if kind is TaskKind.CLASSES else (y.dim() > 2 or y.is_complex()):
        found = f"{str(y.dtype).removeprefix('torch.')} {list(y.shape)}"
        fact = f"the {nodes.unit[:-1]} labels 'y' are {found}, but {_FORMS[kind]}"
        raise TrainError(f"{nodes.dataset}: {fact}; choose another --task")
    if kind is TaskKind.VALUES:
        task = _value_task(nodes, y, config)
    elif kind is TaskKind.CLASSES:
        metric = _metric(config, ClassTask.metrics, Metric.ACCURACY, "classes")
        of = (y[nodes.split("train")], nodes.num_classes, "classes")
        task = ClassTask(nodes.num_classes, metric, class_weights(config.class_weights, *of))
    else:
        check_binary(nodes, y)
        metric = _metric(config, LabelTask.metrics, Metric.ROC_AUC, "labels")
        labels = y.shape[1] if y.dim() == 2 else 1
        of = (y[nodes.split("train")], labels, "labels")
        task = LabelTask(labels, metric, class_weights(config.class_weights, *of))
    check_labelled(nodes, y, task)
    task.unit = nodes.unit
    return task


def _value_task(nodes: PredictedNodes, y: Tensor, config: TaskConfig) -> NodeTask:
    if config.class_weights is not None:
        raise TrainError(f"task.class_weights is given, but {nodes.dataset} has values, not classes, in 'y'")
    loss = config.loss or TaskLoss.MSE
    if loss not in (TaskLoss.MSE, TaskLoss.MAE):
        raise TrainError(f"task.loss is {loss.value}, but a task that predicts values has mse and mae")
    default = Metric.RMSE if loss is TaskLoss.MSE else Metric.MAE
    return ValueTask(tuple(y.shape[1:]), _metric(config, ValueTask.metrics, default, "values"), loss)


def _metric(config: TaskConfig, known: tuple[Metric, ...], default: Metric, what: str) -> Metric:
    metric = config.metric or default
    if metric not in known:
        names = ", ".join(one.value for one in known)
        others = [kind for kind, task in _TASKS.items() if metric in task.metrics]
        option = "give one of them" if not others else f"or choose --task {' or '.join(others)}"
        hint = ", which takes 0 and 1 in 'y' as a label" if others == ["labels"] else ""
        raise TrainError(
            f"task.metric is {metric.value}, but a task that predicts {what} has {names}; {option}{hint}"
        )
    return metric
