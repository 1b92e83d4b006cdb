"""The prediction that a model learns: classes, labels or values of nodes, or links."""

from pyg_batchgnn.train.task.choose import node_task_of, task_of
from pyg_batchgnn.train.task.class_task import ClassTask
from pyg_batchgnn.train.task.label_task import LabelTask
from pyg_batchgnn.train.task.link_metrics import RankCounts
from pyg_batchgnn.train.task.link_task import LinkRanking, LinkTask
from pyg_batchgnn.train.task.metrics import average_precision, f1_score, roc_auc
from pyg_batchgnn.train.task.node_task import NodeTask, Tally
from pyg_batchgnn.train.task.predicted import PredictedNodes
from pyg_batchgnn.train.task.predicted_links import PredictedLinks
from pyg_batchgnn.train.task.ranked_links import RankedLinks
from pyg_batchgnn.train.task.scoring import Evaluation, Scoring, count_not_finite
from pyg_batchgnn.train.task.task import Task
from pyg_batchgnn.train.task.value_task import ValueTask

__all__ = [
    "ClassTask",
    "Evaluation",
    "LabelTask",
    "LinkRanking",
    "LinkTask",
    "NodeTask",
    "PredictedLinks",
    "PredictedNodes",
    "RankCounts",
    "RankedLinks",
    "Scoring",
    "Tally",
    "Task",
    "ValueTask",
    "average_precision",
    "count_not_finite",
    "f1_score",
    "node_task_of",
    "roc_auc",
    "task_of",
]
