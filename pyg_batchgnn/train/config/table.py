"""The table of options: every field of the configuration, with all that is known about it.

The command line, the checks of bounds, the rules of resuming, the saved ``config.json`` and the
reference page of the documentation come from this table. A new option is a new field here, and its
use. Its help text is its entry under "Attributes", where "{default}" stands for the default value.
This file imports nothing that help would have to wait for.
"""

# ruff: noqa: RUF009 - the calls in the classes make dataclass fields

from __future__ import annotations

import dataclasses
import inspect
import math
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, TypeAlias, TypeVar

from pyg_batchgnn.train.config.choices import (
    BFloat16Products,
    CacheKind,
    Decoder,
    EmbeddingRule,
    EvaluationKind,
    LaborKind,
    LastMinibatch,
    LogKind,
    Malloc,
    MatrixProduct,
    Metric,
    ModelKind,
    Precision,
    RemoteKind,
    ReplacementKind,
    ScheduleKind,
    TaskKind,
    TaskLoss,
    TimeStrategy,
    shown,
)

T = TypeVar("T")
Size: TypeAlias = int | Literal["auto", "all"]

#: The largest values that kernels, machines and torch's milliseconds take.
_COUNT, _THREADS, _SECONDS, _BYTES = 2**31 - 1, 4096, 2_000_000, 2**63 - 1
_RATE = 1e37  # The largest step size. Adam's first step is ten times as large, a float32.


class Panel(str, Enum):
    MODEL = "Model and optimiser"
    ROWS = "Learned rows of nodes"
    TASK = "Task"
    SAMPLING = "Sampling"
    CACHE = "Aggregation cache"
    RUNNING = "Running"
    RANKS = "Several ranks (with torchrun)"


class Resuming(str, Enum):
    """Whether a field may change when a run is resumed: where no finished epoch depends on it."""

    STAYS = "stays"
    MAY_CHANGE = "may change"
    WITH_NATIVE_PRODUCT = "may change with the native matrix product"
    WITH_GLOBAL_SCHEDULE = "may change with the global schedule"


@dataclass(frozen=True, kw_only=True)
class Option:
    """What the table knows about a field, beside its type and default."""

    name: str | None = None  # the option of ``batchgnn train``; None: the field's own name
    panel: Panel | None = None  # the panel of the help text; None: the section's panel
    after: str = ""  # the option before it in the help text; "": the order of fields
    flags: tuple[str, ...] = ()  # spellings on the command line; (): from the name
    least: float = -math.inf  # bounds of a number
    most: float = math.inf
    below: float = math.inf
    is_size: bool = False  # True: the command line takes bytes with a unit, as in 2GiB
    needs_ranks: bool = False  # True: of no use in one process
    resuming: Resuming = Resuming.STAYS  # whether it may change in a resumed run
    is_per_host: bool = False  # True: may differ between hosts
    is_decided: bool = False  # True: None, "auto" or "probe" is decided when a run starts


def _field(default: T, **known: Any) -> T:
    made: T = field(default=default, metadata={"option": Option(**known)})
    return made


def _count(default: T, least: int = 1, **known: Any) -> T:
    return _field(default, least=least, most=_COUNT, **known)


@dataclass(frozen=True)
class ModelConfig:
    """The model.

    Attributes:
        kind: Kind of model: sage, gcn, gin or gat. Default: {default}.
        num_layers: Number of layers; each needs one number in --fanout. Default: as many as
            --fanout has, else {default}.
        hidden: Columns between two layers. Default: {default}. Fewer train faster and need less
            memory.
        dropout: Probability of setting an element between layers to zero. Default: {default}. Raise
            it against overfitting. GIN has none.
        heads: Attention heads per layer of GAT; they share the hidden columns. Default: {default}.
        edge_features: Features of edges: read, none, or auto: read where the data has them and the
            model is gat. Default: {default}.
    """

    kind: ModelKind = _field(ModelKind.SAGE, name="model")
    num_layers: int = _count(3)
    hidden: int = _count(256)
    dropout: float = _field(0.5, least=0, below=1)
    heads: int = _count(4)
    edge_features: Literal["auto", "read", "none"] = _field("auto", is_decided=True)


@dataclass(frozen=True)
class OptimiserConfig:
    """The optimiser, and what moves its learning rate: classes of torch, by name and options.

    Attributes:
        kind: Class of torch.optim, as in sgd. Default: {default}.
        options: Its arguments, as in nesterov=true,momentum=0.9 or betas=0.9:0.99.
        learning_rate: Learning rate. Default: {default}. Lower it if the loss jumps. A run that is
            resumed with another goes on with it, and its schedule in proportion.
        weight_decay: Factor of the L2 penalty, for adamw of the decay. Default: that of the
            optimizer, for adam {default}. Raise it, as to 0.0005, against overfitting.
        schedule: Class of torch.optim.lr_scheduler that moves the learning rate, as in
            cosineannealinglr, or reducelronplateau, which follows --metric. Default: none.
        schedule_options: Its arguments, as in milestones=10:15,gamma=0.5.
        schedule_every: What it moves after: epoch or step. Default: {default}.
        clip_norm: Most that the norm of the gradients may be, learned rows aside.
    """

    kind: str = _field("adam", name="optimizer")
    options: tuple[str, ...] | None = _field(None, name="optimizer_options")
    learning_rate: float = _field(0.003, name="lr", least=0, most=_RATE, resuming=Resuming.MAY_CHANGE)
    weight_decay: float = _field(0.0, least=0, most=_RATE)
    schedule: str | None = _field(None, name="lr_schedule")
    schedule_options: tuple[str, ...] | None = _field(None, name="lr_schedule_options")
    schedule_every: Literal["epoch", "step"] = _field("epoch", name="lr_schedule_every")
    clip_norm: float | None = _field(None, least=0, most=_RATE)


@dataclass(frozen=True)
class EmbeddingConfig:
    """The learned rows of nodes, which are trained with the model.

    Attributes:
        types: Node types that have a learned row per node: names with commas, all, none, or auto:
            the types without features. Default: {default}.
        columns: Columns of learned rows. Default: those of --hidden.
        rule: Rule of their updates: adam, adagrad or sgd. Default: {default}.
        learning_rate: Their learning rate, which a schedule moves too. Default: that of --lr.
    """

    types: Literal["auto", "all", "none"] | tuple[str, ...] = _field("auto", name="embed")
    columns: int | None = _count(None, name="embed_columns")
    rule: EmbeddingRule = _field(EmbeddingRule.ADAM, name="embed_rule")
    learning_rate: float | None = _field(
        None, name="embed_lr", least=0, most=_RATE, resuming=Resuming.MAY_CHANGE
    )


@dataclass(frozen=True)
class TaskConfig:
    """The prediction that the model learns, and how it is measured.

    Attributes:
        node_type: Node type whose nodes are predicted, in a graph with named types. Default: the
            only type.
        kind: What is predicted for each node: classes (one of several), labels (any number of
            them), values (numbers), or auto: integers [N] are classes, integers or booleans [N, C]
            labels, floats values. With link the links of a relation are predicted, with edge-class
            and edge-value the labels of its edges. Default: {default}.
        loss: Loss of values: mse or mae; of links: bce, bpr or softmax. Default: the first; with
            in-batch negatives softmax, the only one.
        class_weights: Weights in the loss: one number per class, as in 1,1,5, or per label for the
            nodes that have it; balanced makes rare classes weigh as much as frequent ones. Default:
            all weigh the same.
        metric: Metric of validation nodes that chooses the best epoch: accuracy or macro_f1 for
            classes; roc_auc, average_precision, micro_f1 or macro_f1 for labels; mae or rmse for
            values; mrr, hits@1, 3, 10, 20, 50 or 100 for links. Default: the first; for values that
            of the loss.
        edge_type: Relation whose links or edges are predicted, as in user,buys,item. Default: the
            only one.
        reverse_edge_type: Relation that holds the same edges the other way, as in
            item,sold_to,user. A minibatch sees the edges of its own links in neither. Default: the
            relation itself in a homogeneous graph; else that of the same name with rev_ in front,
            or without it, if there is one.
        decoder: Score of a link: dot (dot product) or mlp (perceptron on the product). Default:
            {default}.
        negatives: Other pairs drawn for each link in training; in-batch: the targets of the
            minibatch's other links, for which nothing more is sampled; given: those that the data
            has for each training link (negative_targets). Default: {default}.
        ranked_among: Other targets that a link is ranked among in evaluation, where its split has
            none. They are drawn once and are the same in every run. Default: {default}.
    """

    node_type: str | None = _field(None)
    kind: TaskKind = _field(TaskKind.AUTO, name="task")
    loss: TaskLoss | None = _field(None)
    class_weights: Literal["balanced"] | tuple[float, ...] | None = _field(None)
    metric: Metric | None = _field(None)
    edge_type: tuple[str, ...] | None = _field(None)
    reverse_edge_type: tuple[str, ...] | None = _field(None)
    decoder: Decoder = _field(Decoder.DOT)
    negatives: int | Literal["in-batch", "given"] = _count(1)
    ranked_among: int = _count(100)


@dataclass(frozen=True)
class SamplingConfig:
    """The minibatches. `macrobatch_size` to `prefetch` change time and memory, never a result.

    Attributes:
        fanout: Neighbours to sample per node at each hop, as in 15,10,5; -1 takes all. Default:
            {default}. Smaller numbers are faster and less accurate.
        test_fanout: The same for evaluation. Default: 20 at each hop; for gin, --fanout.
        evaluation: How nodes are evaluated: sampled, by --test-fanout, or exact, from all their
            neighbours, layer by layer over all nodes (native layers). Default: {default}.
        replacement: Sample neighbours with or without replacement. Default: {default}, as BatchGNN;
            PyG's default is without.
        labor: With --replacement without, let nodes of a training minibatch pick the same
            neighbours where they can, within a hop, all layers or an epoch: it has fewer rows, and
            is faster. Default: each picks by itself.
        time_attr: Attribute with the times of nodes or of edges, as in time. A node or link is then
            computed from neighbours that are not later than itself. Default: times are not looked
            at.
        temporal_strategy: With --time-attr, neighbours to sample: uniform draws among those that
            are early enough, last takes the latest of them. Default: {default}.
        freeze: With --time-attr, the time after which no neighbour is sampled, whatever the time of
            the node or link: an integer or a date such as 2024-03-01; none lifts a run's.
        batch_size: Training nodes per minibatch on each rank. Default: {default}. Lower it for
            small graphs.
        test_batch_size: Nodes per minibatch of evaluation. Default: as in training.
        last_batch: drop or keep an epoch's last, smaller minibatch. Default: {default}.
        macrobatch_size: Minibatches that are sampled together: a number, all of an epoch, or auto.
            Default: {default}. More need more memory and fewer exchanges between ranks. Results do
            not change.
        fetch_size: Minibatches that have their features fetched together: a number, all of a
            macrobatch, or auto. Default: {default}. Fewer need less memory. Results do not change.
        memory_budget: Memory that a rank may use beside the topology, the model and labels, as in
            2GiB or 500MB. Features of files are held if they fit half of it. In one process, edges
            by destination are held if they take no more than it, and rows of all nodes lie in files
            if they do not fit. Auto sizes fit into the rest. Default: half of the free memory for
            features, and an eighth for the loader.
        prefetch: Macrobatches to prepare during training. Default: {default}. Set 1 if cores or the
            network are idle; it needs more memory.
        cache: aggregation replaces the last hop by aggregates of all neighbours, built before
            training (native sage, gcn and gin); off samples every hop. Default: {default}. It is
            faster and changes the trained model.
        cache_folder: Folder of the aggregates: read if it exists, else written. Default: build them
            in every run.
        evaluate_with_cache: Evaluate with the aggregates too. Default: with them for gin, without
            for sage and gcn.
    """

    fanout: tuple[int, ...] = _field((15, 10, 5))
    test_fanout: tuple[int, ...] | None = _field(None)
    evaluation: EvaluationKind = _field(EvaluationKind.SAMPLED)
    replacement: ReplacementKind = _field(ReplacementKind.WITH)
    labor: LaborKind | None = _field(None)
    time_attr: str | None = _field(None)
    temporal_strategy: TimeStrategy = _field(TimeStrategy.UNIFORM)
    freeze: int | str | None = _field(None)
    batch_size: int = _count(1024)
    test_batch_size: int | None = _count(None, name="")
    last_batch: LastMinibatch = _field(LastMinibatch.DROP)
    macrobatch_size: Size = _count(
        "auto", name="macrobatch", flags=("--macrobatch", "--macrobatch-size"), resuming=Resuming.MAY_CHANGE
    )
    fetch_size: Size = _count(
        "auto", name="fetch", flags=("--fetch", "--fetch-size"), resuming=Resuming.MAY_CHANGE
    )
    memory_budget: int | None = _field(None, least=1, most=_BYTES, is_size=True, resuming=Resuming.MAY_CHANGE)
    prefetch: int = _count(0, least=0, resuming=Resuming.MAY_CHANGE)
    cache: CacheKind = _field(CacheKind.OFF, panel=Panel.CACHE)
    cache_folder: str | None = _field(None, panel=Panel.CACHE, resuming=Resuming.MAY_CHANGE)
    evaluate_with_cache: bool | None = _field(
        None, panel=Panel.CACHE, flags=("--evaluate-with-cache/--evaluate-without-cache",)
    )


@dataclass(frozen=True)
class RunConfig:
    """The data set, the length of the run and its resources.

    Attributes:
        dataset: Name or folder of the data set, as the argument of the command.
        reverse_relations: Add the reverse of every relation of named types. A saved partition needs
            --reverse too. Every process copies all edges; write the folder of a large graph with
            its reverse relations instead.
        epochs: Passes over the training nodes. Default: {default}.
        evaluate_every: Epochs between two validations; the last epoch is always validated. Default:
            {default}.
        patience: Stop after this many validations in a row without a better metric. Default: train
            all epochs.
        seed: Determines initial weights, order of nodes, samples and dropout. Default: {default}.
            The same seed repeats a run.
        threads: Threads of torch and the loader on each rank. Default: one per core, shared by the
            ranks of a host; for a saved run its own.
        precision: float32, or bfloat16 for features, activations and products: half the memory, and
            faster on CPUs with AMX or AVX-512 BF16. Default: {default}.
        matrix_product: Matrix product of native layers: native, torch, or probe: the faster one,
            which takes a second to find out. The two round differently, so of two runs with probe
            one may choose the other and end with other weights. Default: native on processors with
            AVX2 or AVX-512, else torch.
        bfloat16_products: How native layers multiply bfloat16: widened to float32, which every
            processor can, in pairs (AVX-512 BF16), or in tiles (AMX). They round differently.
            Default: by the processor, tiles with AMX, pairs on AMD's, else widened, and what all
            ranks have; a saved run's own. A run that is resumed with another goes on with other
            bits.
        log: Program that receives each epoch's figures, beside metrics.jsonl: tensorboard, mlflow
            or wandb, where it is installed. Default: none.
        malloc: What becomes of freed memory: keep lets the C library keep it, default leaves it to
            the library. Default: {default}.
        checkpoint_seconds: Seconds within an epoch after which a checkpoint is written. Default:
            {default}.
    """

    dataset: str | None = _field(
        None, name="", resuming=Resuming.MAY_CHANGE, is_per_host=True, is_decided=True
    )
    reverse_relations: bool = _field(
        False, name="reverse", panel=Panel.TASK, after="node_type", flags=("--reverse",)
    )
    epochs: int = _count(20, resuming=Resuming.MAY_CHANGE)
    evaluate_every: int = _count(1)
    patience: int | None = _count(None, resuming=Resuming.MAY_CHANGE)
    seed: int = _field(0, least=0, most=2**64 - 1)
    threads: int | None = _field(
        None, least=1, most=_THREADS, resuming=Resuming.WITH_NATIVE_PRODUCT, is_per_host=True, is_decided=True
    )
    precision: Precision = _field(Precision.FLOAT32)
    matrix_product: MatrixProduct = _field(MatrixProduct.AUTO, is_decided=True)
    bfloat16_products: BFloat16Products = _field(
        BFloat16Products.AUTO, is_decided=True, resuming=Resuming.MAY_CHANGE
    )
    log: LogKind | None = _field(None, resuming=Resuming.MAY_CHANGE)
    malloc: Malloc = _field(Malloc.KEEP, name="", resuming=Resuming.MAY_CHANGE)
    checkpoint_seconds: float = _field(600.0, name="", least=0, resuming=Resuming.MAY_CHANGE)


@dataclass(frozen=True)
class RanksConfig:
    """The division of the work over the ranks that a launcher started. Ignored with one rank.

    Attributes:
        partition: Which rank owns which node: random, contiguous, ldg, fennel, or the folder of a
            saved partition. Default: {default}; for a saved run its own. ldg and fennel take longer
            to make and send less in training.
        hybrid: Keep all edges on every rank, so that only features travel. Default: no. Use it if
            the edges fit the memory of each rank.
        feature_cache: Memory per rank for the features of other hosts that are needed most, as in
            2GiB. Default: {default}.
        schedule: local: each rank trains on the nodes that it owns, which sends least. balanced:
            each rank trains on equally many nodes, most of them its own; use it if the training
            nodes are spread unevenly. global: the ranks share the minibatches of one process,
            whatever their number. Default: {default}.
        remote: What layers read of other ranks' nodes. exact: their sampled neighbours. historical:
            rows that their owners pushed some steps ago, if they did; faster on slow networks, and
            less exact. Evaluation is always exact. Default: {default}.
        cache_lines: Rows in each layer's cache of historical embeddings; none: one per halo node.
            Default: {default}.
        life_span: Steps for which a cached row can be read; none: without end. Default: {default}.
        push: Rows that a rank pushes at most per step, layer and peer; none: all. Default:
            {default}.
        delay: Steps after which pushed rows are received. Default: {default}.
        backend: Backend of torch.distributed, as in gloo or ccl; batchgnn doctor shows which work
            here. Default: {default}.
        timeout: Seconds that a rank waits for the others before it ends with an error. Default:
            {default}.
    """

    partition: str = _field("random", resuming=Resuming.WITH_GLOBAL_SCHEDULE, needs_ranks=True)
    hybrid: bool = _field(
        False, flags=("--hybrid/--no-hybrid",), needs_ranks=True, resuming=Resuming.MAY_CHANGE
    )
    feature_cache: int | None = _field(
        None, least=0, most=_BYTES, is_size=True, needs_ranks=True, resuming=Resuming.MAY_CHANGE
    )
    schedule: ScheduleKind = _field(ScheduleKind.LOCAL)
    remote: RemoteKind = _field(RemoteKind.EXACT)
    cache_lines: int | None = _field(1_000_000, least=1, most=2**30 - 1)
    life_span: int | None = _count(2)
    push: int | None = _count(2000)
    delay: int = _count(1)
    backend: str = _field("gloo", needs_ranks=True, resuming=Resuming.MAY_CHANGE)
    timeout: float = _field(600.0, least=1, most=_SECONDS, needs_ranks=True, resuming=Resuming.MAY_CHANGE)


#: The sections of the configuration by name, in the order of ``config.json``, with their panels.
_SECTIONS: Mapping[str, tuple[type[Any], Panel]] = {
    "model": (ModelConfig, Panel.MODEL),
    "sampling": (SamplingConfig, Panel.SAMPLING),
    "task": (TaskConfig, Panel.TASK),
    "embedding": (EmbeddingConfig, Panel.ROWS),
    "optimiser": (OptimiserConfig, Panel.MODEL),
    "run": (RunConfig, Panel.RUNNING),
    "ranks": (RanksConfig, Panel.RANKS),
}


#: An attribute in the docstring of a section: its name and its text.
_ATTRIBUTE = re.compile(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)


@dataclass(frozen=True)
class ConfigField:
    """A field of the configuration: a row of the table."""

    path: str  # section and name, as in "model.hidden"
    default: Any
    hint: Any  # the type
    name: str  # the option of ``batchgnn train``, with underscores; "": none
    panel: Panel
    option: Option  # the rest
    help: str

    @property
    def bounds(self) -> str:
        """The bounds of a number as text, such as "1 to 4,096"; "" without bounds."""
        option = self.option
        if option.below < math.inf:
            return f"{option.least} to below {option.below}"
        if option.most < _COUNT:
            return f"{option.least:,} to {option.most:,}"
        return f"at least {option.least}" if option.least > -math.inf else ""

    @property
    def flags(self) -> tuple[str, ...]:
        """The spellings on the command line; () if only ``--set`` reaches the field."""
        return self.option.flags or (("--" + self.name.replace("_", "-"),) if self.name else ())

    @property
    def command_line_type(self) -> type[Any]:
        """The type of the option's value: a number, a truth value or a text."""
        kinds = typing.get_args(self.hint) or (self.hint,)
        plain = [one for one in kinds if one is not type(None)]
        is_text = self.option.is_size or (type(None) in kinds and self.default is not None)
        return plain[0] if plain in ([bool], [int], [float]) and not is_text else str


def _rows() -> dict[str, ConfigField]:
    found = {}
    for section, (kind, panel) in _SECTIONS.items():
        hints, helps = typing.get_type_hints(kind), dict(_ATTRIBUTE.findall(inspect.getdoc(kind) or ""))
        for one in dataclasses.fields(kind):
            path, option = f"{section}.{one.name}", one.metadata["option"]
            name = one.name if option.name is None else option.name
            text = " ".join(helps.get(one.name, "").split()).replace("{default}", shown(one.default))
            row = (path, one.default, hints[one.name], name, option.panel or panel, option, text)
            found[path] = ConfigField(*row)
    return found


def _options() -> dict[str, ConfigField]:
    panels, found = list(Panel), [one for one in FIELDS.values() if one.name]
    found.sort(key=lambda one: panels.index(one.panel))
    for one in [one for one in found if one.option.after]:
        found.remove(one)
        found.insert([other.name for other in found].index(one.option.after) + 1, one)
    return {one.name: one for one in found}


FIELDS: Mapping[str, ConfigField] = types.MappingProxyType(_rows())
#: The fields that ``batchgnn train`` has options for, by the options' names in the help text.
OPTIONS: Mapping[str, ConfigField] = types.MappingProxyType(_options())
