"""The values that fields of the configuration choose from."""

from __future__ import annotations

from enum import Enum

#: The partitioning policies.
POLICIES = ("random", "contiguous", "ldg", "fennel", "multilevel", "metis")


class ModelKind(str, Enum):
    """The convolution that the layers are made of."""

    SAGE = "sage"
    GCN = "gcn"
    GIN = "gin"
    GAT = "gat"


class Precision(str, Enum):
    """The type of features, activations and matrix products. Weights and loss are float32."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


class MatrixProduct(str, Enum):
    """The matrix product that native layers use."""

    AUTO = "auto"  # follows from the processor alone
    NATIVE = "native"
    TORCH = "torch"
    PROBE = "probe"  # the faster one when the run starts, by the clock


class BFloat16Products(str, Enum):
    """The level of native products of bfloat16 (`ops.bfloat16_levels`). They round differently."""

    AUTO = "auto"  # the default of the processor, or the highest one of several that all have
    WIDENED = "widened"
    PAIRS = "pairs"
    TILES = "tiles"


class TaskKind(str, Enum):
    """The kind of prediction, for each node or for pairs of nodes."""

    AUTO = "auto"  # integers [N] are classes, integers or booleans [N, C] labels, floats values
    CLASSES = "classes"  # one of C classes
    LABELS = "labels"  # any number of C labels, each 0 or 1
    VALUES = "values"  # one or several numbers
    LINKS = "link"  # the links of a relation, told from other pairs


class TaskLoss(str, Enum):
    """The loss of a task that predicts values or links. Other tasks have a loss of their own."""

    MSE = "mse"  # the mean of squared errors
    MAE = "mae"  # the mean of absolute errors
    BCE = "bce"  # of links: binary cross entropy
    BPR = "bpr"  # of links: Bayesian personalised ranking, each link against its negatives


class Decoder(str, Enum):
    """The score of a pair of nodes."""

    DOT = "dot"  # the dot product of their rows
    MLP = "mlp"  # a perceptron on the product of their rows


class Metric(str, Enum):
    """A measure of predictions. Each task has some of them."""

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
        """The name for people, as in "ROC-AUC"."""
        named = {"roc_auc": "ROC-AUC", "mae": "MAE", "rmse": "RMSE", "mrr": "MRR"}
        text = self.value.replace("hits", "Hits").replace("_", " ").replace("f1", "F1")
        return named.get(self.value, text)


class CacheKind(str, Enum):
    """The cache that is built before training and saves a part of the sampling."""

    OFF = "off"
    AGGREGATION = "aggregation"  # input features aggregated over all neighbours; replaces the last hop


class EvaluationKind(str, Enum):
    """The neighbours from which evaluation computes a node."""

    SAMPLED = "sampled"  # minibatches with the fanout of evaluation
    EXACT = "exact"  # all neighbours, layer by layer over all nodes


class ReplacementKind(str, Enum):
    """The drawing of neighbours: with replacement or without it."""

    WITHOUT = "without"
    WITH = "with"


class TimeStrategy(str, Enum):
    """The drawing of neighbours among those that the time of a seed allows."""

    UNIFORM = "uniform"
    LAST = "last"  # the latest ones


class LastMinibatch(str, Enum):
    """The treatment of the training nodes at the end of an epoch that do not fill a minibatch."""

    DROP = "drop"
    KEEP = "keep"


class Malloc(str, Enum):
    """The treatment of freed memory: the C library keeps it, or gives it back to the system."""

    KEEP = "keep"
    DEFAULT = "default"


class LogKind(str, Enum):
    """A program that receives the figures of a run, beside the file metrics.jsonl."""

    TENSORBOARD = "tensorboard"
    MLFLOW = "mlflow"
    WANDB = "wandb"


class RemoteKind(str, Enum):
    """The way in which layers get the rows of nodes that other ranks own. Ignored with one rank."""

    EXACT = "exact"  # sampled and fetched for each minibatch
    HISTORICAL = "historical"  # rows that their owners pushed some steps ago


class EmbeddingRule(str, Enum):
    """The rule by which learned rows of nodes are updated."""

    ADAM = "adam"  # torch.optim.SparseAdam
    ADAGRAD = "adagrad"  # torch.optim.Adagrad
    SGD = "sgd"  # torch.optim.SGD


class ScheduleKind(str, Enum):
    """The assignment of minibatches to ranks. Ignored with one rank."""

    LOCAL = "local"  # a rank trains on the training nodes that it owns
    BALANCED = "balanced"  # every rank trains on equally many, most of them its own
    GLOBAL = "global"  # rank g mod R trains on minibatch g of the one-process run
