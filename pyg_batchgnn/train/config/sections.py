"""The sections of the configuration, as frozen dataclasses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pyg_batchgnn.sample import Replacement
from pyg_batchgnn.train.config.choices import (
    CacheKind,
    Decoder,
    EmbeddingRule,
    EvaluationKind,
    LastMinibatch,
    Malloc,
    MatrixProduct,
    Metric,
    ModelKind,
    Precision,
    RemoteKind,
    ScheduleKind,
    TaskKind,
    TaskLoss,
)

Size: TypeAlias = int | Literal["auto", "all"]


@dataclass(frozen=True)
class ModelConfig:
    """The model.

    Attributes:
        kind: the convolution that the layers are made of.
        num_layers: the number of layers. Each layer takes one hop.
        hidden: columns between layers.
        dropout: the probability that an element between two layers is set to zero in training. GIN
            has no dropout.
        heads: attention heads per layer, of GAT alone.
    """

    kind: ModelKind = ModelKind.SAGE
    num_layers: int = 3
    hidden: int = 256
    dropout: float = 0.5
    heads: int = 4


@dataclass(frozen=True)
class SamplingConfig:
    """The minibatches. The fields from `macrobatch_size` on change time and memory, never a result.

    Attributes:
        fanout: neighbours per node at each hop, the hop next to the seed nodes first; -1 takes all.
        replacement: neighbours are drawn with or without replacement, in training and in
            evaluation.
        batch_size: training nodes per minibatch on each rank. A step of R ranks has R times as
            many.
        last_batch: drop or keep a last, smaller minibatch. The only minibatch is always kept.
        evaluation: sampled minibatches, or every node from all its neighbours.
        test_fanout: as `fanout`, for sampled evaluation. None means 20 at each hop; for GIN,
            `fanout`.
        test_batch_size: nodes per minibatch of evaluation. None means `batch_size`.
        cache: aggregates that replace the last hop of `fanout`.
        evaluate_with_cache: True if evaluation uses the aggregates too. None means yes for GIN, and
            no for SAGE and GCN (BatchGNN, section 4).
        macrobatch_size: minibatches that are sampled together, "auto", or "all" of an epoch.
        fetch_size: minibatches that have their features gathered together, "auto", or "all" of a
            macrobatch.
        memory_budget: bytes that the loader may use. None leaves the choice to the loader.
        prefetch: macrobatches that are prepared during training.
        cache_folder: the folder of the aggregates. They are read from it if it exists, else written
            to it. None builds them in every run.
    """

    fanout: tuple[int, ...] = (15, 10, 5)
    replacement: Replacement = Replacement.WITH
    batch_size: int = 1024
    last_batch: LastMinibatch = LastMinibatch.DROP
    evaluation: EvaluationKind = EvaluationKind.SAMPLED
    test_fanout: tuple[int, ...] | None = None
    test_batch_size: int | None = None
    cache: CacheKind = CacheKind.OFF
    evaluate_with_cache: bool | None = None
    macrobatch_size: Size = "auto"
    fetch_size: Size = "auto"
    memory_budget: int | None = None
    prefetch: int = 0
    cache_folder: str | None = None


@dataclass(frozen=True)
class TaskConfig:
    """The prediction that the model learns, and how it is measured.

    Attributes:
        node_type: the node type whose nodes are predicted. None stands for the only one.
        kind: "auto" takes it from the type and shape of the labels "y".
        loss: of a task that predicts values or links. None means the mean squared error for values
            and binary cross entropy for links. Refused for others.
        class_weights: weights of the classes in the loss, or of the positive nodes of each label:
            one number each. "balanced" computes them from the training nodes. None means that all
            weigh the same.
        metric: decides on validation nodes which epoch is the best. None means accuracy for
            classes, ROC-AUC for labels, the metric of the loss for values, and MRR for links.
        edge_type: the relation whose links are predicted: its source type, name and target type.
            None stands for the only one. This and the next three fields are for links.
        reverse_edge_type: the relation that holds the same edges the other way. None stands for the
            same relation in a homogeneous graph, and else for that of the same name with "rev_" in
            front, or without it, if there is one. A minibatch does not see the edges of its own
            links, in either.
        decoder: the score of a pair.
        negatives: other pairs per link in training. For binary cross entropy both ends are drawn,
            for BPR the target.
    """

    node_type: str | None = None
    kind: TaskKind = TaskKind.AUTO
    loss: TaskLoss | None = None
    class_weights: Literal["balanced"] | tuple[float, ...] | None = None
    metric: Metric | None = None
    edge_type: tuple[str, ...] | None = None
    reverse_edge_type: tuple[str, ...] | None = None
    decoder: Decoder = Decoder.DOT
    negatives: int = 1


@dataclass(frozen=True)
class EmbeddingConfig:
    """The learned rows of nodes, which are trained with the model.

    Attributes:
        types: the node types that have them: names, "all", "none", or "auto", which stands for the
            types without features. Where a type has features too, the model reads both.
        columns: the number of columns. None means `ModelConfig.hidden`.
        rule: the rule of the updates.
        learning_rate: the step size. None means that of the optimiser.
    """

    types: Literal["auto", "all", "none"] | tuple[str, ...] = "auto"
    columns: int | None = None
    rule: EmbeddingRule = EmbeddingRule.ADAM
    learning_rate: float | None = None


@dataclass(frozen=True)
class OptimiserConfig:
    """The Adam optimiser.

    Attributes:
        learning_rate: Adam's step size.
        weight_decay: the factor of Adam's L2 penalty.
    """

    learning_rate: float = 0.003
    weight_decay: float = 0.0


@dataclass(frozen=True)
class RunConfig:
    """The data set, the length of the run and its resources.

    Attributes:
        dataset: a name or path, as `pyg_batchgnn.data.load_dataset` takes it. None means the
            default data set.
        reverse_relations: True if the graph gets the reverse of every relation, which only graphs
            with named node types can get.
        epochs: passes over the training nodes.
        seed: determines initial weights, order of nodes, samples and dropout.
        threads: threads of torch and of the loader. None means one per core.
        precision: the type of features, activations and matrix products.
        matrix_product: the matrix product of native layers. "auto" and "probe" are decided when the
            run starts, and kept when it is resumed.
        malloc: the treatment of freed memory; see `pyg_batchgnn.train.malloc`.
        evaluate_every: epochs between two validations. The last epoch is always validated.
        patience: the run stops after this many validations in a row without a better result. None
            trains all epochs.
        checkpoint_seconds: the longest time within an epoch without a checkpoint.
    """

    dataset: str | None = None
    reverse_relations: bool = False
    epochs: int = 20
    seed: int = 0
    threads: int | None = None
    precision: Precision = Precision.FLOAT32
    matrix_product: MatrixProduct = MatrixProduct.AUTO
    malloc: Malloc = Malloc.KEEP
    evaluate_every: int = 1
    patience: int | None = None
    checkpoint_seconds: float = 600.0


@dataclass(frozen=True)
class RanksConfig:
    """The division of the work over the ranks that a launcher started. Ignored with one rank.

    Attributes:
        partition: decides which rank owns which node: a policy (random, contiguous, ldg, fennel,
            multilevel, metis) or the folder of a saved partition.
        hybrid: True if every rank holds the whole topology, so that only features travel.
        feature_cache: bytes per rank for the rows of other hosts that training needs most. None
            means no such cache.
        schedule: the assignment of minibatches to ranks.
        remote: the source of what layers read of other ranks' nodes in training. Evaluation is
            always exact.
        cache_lines: rows in each layer's historical embedding cache. None means as many as there
            are halo nodes. This and the next three fields are ignored unless `remote` is
            historical.
        life_span: steps for which a cached row can be read. None means without end.
        push: rows that a rank pushes at most per step, layer and peer. None means all.
        delay: steps after which pushed rows are received.
        backend: the backend of torch.distributed.
        timeout: seconds that a rank waits for the others before it gives up with an error.
    """

    partition: str = "random"
    hybrid: bool = False
    feature_cache: int | None = None
    schedule: ScheduleKind = ScheduleKind.LOCAL
    remote: RemoteKind = RemoteKind.EXACT
    cache_lines: int | None = 1_000_000
    life_span: int | None = 2
    push: int | None = 2000
    delay: int = 1
    backend: str = "gloo"
    timeout: float = 600.0
