"""The prediction that a model learns for each node: classes, labels or values."""

from pyg_batchgnn.train.task.choose import task_of
from pyg_batchgnn.train.task.class_task import ClassTask
from pyg_batchgnn.train.task.label_task import LabelTask
from pyg_batchgnn.train.task.metrics import average_precision, f1_score, roc_auc
from pyg_batchgnn.train.task.node_task import NodeTask, Tally
from pyg_batchgnn.train.task.predicted import PredictedNodes
from pyg_batchgnn.train.task.scoring import Evaluation, Scoring
from pyg_batchgnn.train.task.value_task import ValueTask

__all__ = [
    "ClassTask",
    "Evaluation",
    "LabelTask",
    "NodeTask",
    "PredictedNodes",
    "Scoring",
    "Tally",
    "ValueTask",
    "average_precision",
    "f1_score",
    "roc_auc",
    "task_of",
]
