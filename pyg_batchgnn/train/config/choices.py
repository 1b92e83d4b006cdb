"""The values that fields of the configuration choose from, and how values are written."""

from __future__ import annotations

from enum import Enum
from typing import Any

POLICIES = ("random", "contiguous", "ldg", "fennel", "multilevel", "metis")


def shown(value: Any) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value).lower()


class ModelKind(str, Enum):  # the convolution that the layers are made of
    SAGE = "sage"
    GCN = "gcn"
    GIN = "gin"
    GAT = "gat"


#: The type of features, activations and matrix products. Weights and loss are float32.
class Precision(str, Enum):
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


class MatrixProduct(str, Enum):  # the matrix product that native layers use
    AUTO = "auto"  # follows from the processor alone
    NATIVE = "native"
    TORCH = "torch"
    PROBE = "probe"  # the faster one when the run starts, by the clock


#: The level of native products of bfloat16 (`ops.bfloat16_levels`). They round differently.
class BFloat16Products(str, Enum):
    AUTO = "auto"  # the default of the processor, or the highest one of several that all have
    WIDENED = "widened"
    PAIRS = "pairs"
    TILES = "tiles"


class TaskKind(str, Enum):  # the kind of prediction, for each node or for pairs of nodes
    AUTO = "auto"  # integers [N] are classes, integers or booleans [N, C] labels, floats values
    CLASSES = "classes"  # one of C classes
    LABELS = "labels"  # any number of C labels, each 0 or 1
    VALUES = "values"  # one or several numbers
    LINKS = "link"  # the links of a relation, told from other pairs
    EDGE_CLASSES = "edge-class"  # one of C classes of each edge, or its labels
    EDGE_VALUES = "edge-value"  # one or several numbers of each edge

    @property
    def is_of_edges(self) -> bool:
        return self in (TaskKind.EDGE_CLASSES, TaskKind.EDGE_VALUES)


#: The loss of a task that predicts values or links. Other tasks have a loss of their own.
class TaskLoss(str, Enum):
    MSE = "mse"  # the mean of squared errors
    MAE = "mae"  # the mean of absolute errors
    BCE = "bce"  # of links: binary cross entropy
    BPR = "bpr"  # of links: Bayesian personalised ranking, each link against its negatives
    SOFTMAX = "softmax"  # of links: cross entropy, each link among its negatives


class Decoder(str, Enum):  # the score of a pair of nodes
    DOT = "dot"  # the dot product of their rows
    MLP = "mlp"  # a perceptron on the product of their rows


class Metric(str, Enum):  # a measure of predictions. Each task has some of them
    ACCURACY = "accuracy"
    MACRO_F1 = "macro_f1"
    MICRO_F1 = "micro_f1"
    ROC_AUC = "roc_auc"
    AVERAGE_PRECISION = "average_precision"
    MAE = "mae"
    RMSE = "rmse"
    MRR = "mrr"
    HITS_1 = "hits@1"
    HITS_3 = "hits@3"
    HITS_10 = "hits@10"
    HITS_20 = "hits@20"
    HITS_50 = "hits@50"
    HITS_100 = "hits@100"

    @property
    def is_error(self) -> bool:
        """True if lower values are better."""
        return self in (Metric.MAE, Metric.RMSE)

    @property
    def label(self) -> str:
        """The name for people, such as "ROC-AUC"."""
        named = {"roc_auc": "ROC-AUC", "mae": "MAE", "rmse": "RMSE", "mrr": "MRR"}
        text = self.value.replace("hits", "Hits").replace("_", " ").replace("f1", "F1")
        return named.get(self.value, text)


#: The cache that is built before training and saves a part of the sampling.
class CacheKind(str, Enum):
    OFF = "off"
    AGGREGATION = "aggregation"  # input features aggregated over all neighbours; replaces the last hop


class EvaluationKind(str, Enum):  # the neighbours from which evaluation computes a node
    SAMPLED = "sampled"  # minibatches with the fanout of evaluation
    EXACT = "exact"  # all neighbours, layer by layer over all nodes


class ReplacementKind(str, Enum):  # the drawing of neighbours: with replacement or without it
    WITHOUT = "without"
    WITH = "with"


class LaborKind(str, Enum):  # over what the destinations of a minibatch share the words of sources
    HOP = "hop"
    LAYERS = "layers"
    EPOCH = "epoch"


#: The drawing of neighbours among those that the time of a seed allows.
class TimeStrategy(str, Enum):
    UNIFORM = "uniform"
    LAST = "last"  # the latest ones


#: The treatment of the training nodes at the end of an epoch that do not fill a minibatch.
class LastMinibatch(str, Enum):
    DROP = "drop"
    KEEP = "keep"


#: The treatment of freed memory: the C library keeps it, or gives it back to the system.
class Malloc(str, Enum):
    KEEP = "keep"
    DEFAULT = "default"


#: A program that receives the figures of a run, beside the file metrics.jsonl.
class LogKind(str, Enum):
    TENSORBOARD = "tensorboard"
    MLFLOW = "mlflow"
    WANDB = "wandb"


#: The way in which layers get the rows of nodes that other ranks own. Ignored with one rank.
class RemoteKind(str, Enum):
    EXACT = "exact"  # sampled and fetched for each minibatch
    HISTORICAL = "historical"  # rows that their owners pushed some steps ago


class EmbeddingRule(str, Enum):  # the rule by which learned rows of nodes are updated
    ADAM = "adam"  # torch.optim.SparseAdam
    ADAGRAD = "adagrad"  # torch.optim.Adagrad
    SGD = "sgd"  # torch.optim.SGD


class ScheduleKind(str, Enum):  # the assignment of minibatches to ranks. Ignored with one rank
    LOCAL = "local"  # a rank trains on the training nodes that it owns
    BALANCED = "balanced"  # every rank trains on equally many, most of them its own
    GLOBAL = "global"  # rank g mod R trains on minibatch g of the one-process run
