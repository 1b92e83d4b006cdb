"""Everything that decides what a run computes, as frozen dataclasses that are written to ``config.json``."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, TypeAlias

from pyg_batchgnn.sample import Replacement
from pyg_batchgnn.train.errors import TrainError

Size: TypeAlias = int | Literal["auto"]
Bounds: TypeAlias = dict[str, tuple[float | Literal["auto"] | None, float, float]]
#: Largest counts, threads and seconds: what kernels, machines and torch's milliseconds can take.
_COUNT, _THREADS, _SECONDS = 2**31 - 1, 4096, 2_000_000
#: Ways to decide who owns which node.
POLICIES = ("random", "contiguous", "ldg", "fennel")


class ModelKind(str, Enum):
    """Which convolution the layers are made of."""

    SAGE = "sage"
    GCN = "gcn"
    GIN = "gin"
    GAT = "gat"


class LayerSource(str, Enum):
    """Whose layers a model is made of; `state_dict` keys are the same."""

    NATIVE = "native"  # pyg_batchgnn.nn
    PYG = "pyg"  # torch_geometric.nn


class Precision(str, Enum):
    """In what features, activations and matrix products are held; weights and loss are always float32."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


class MatrixProduct(str, Enum):
    """Which matrix product native layers use."""

    AUTO = "auto"  # the faster one here, by a probe when the run starts
    NATIVE = "native"
    TORCH = "torch"


class CacheKind(str, Enum):
    """What is made before training to spare sampling."""

    OFF = "off"
    AGGREGATION = "aggregation"  # of the input features over all neighbours, instead of the last hop


class LastMinibatch(str, Enum):
    """What becomes of the training nodes that do not fill a minibatch."""

    DROP = "drop"
    KEEP = "keep"


class Malloc(str, Enum):
    """Whether the C library keeps memory that training frees, or gives it back to the system."""

    KEEP = "keep"
    DEFAULT = "default"


class ScheduleKind(str, Enum):
    """Which rank trains which minibatch; of no meaning with one rank."""

    LOCAL = "local"  # a rank trains the training nodes that it owns
    GLOBAL = "global"  # minibatch g of one process is trained by rank g mod R


@dataclass(frozen=True)
class ModelConfig:
    """The network: `num_layers` convolutions of `layers`, `hidden` columns between them.

    `dropout` (between layers) does not apply to GIN, `heads` only to GAT.
    """

    kind: ModelKind = ModelKind.SAGE
    layers: LayerSource = LayerSource.NATIVE
    num_layers: int = 3
    hidden: int = 256
    dropout: float = 0.5
    heads: int = 4


@dataclass(frozen=True)
class SamplingConfig:
    """Minibatches. From `macrobatch_size` on, fields change time and memory, never a result.

    Attributes:
        fanout: neighbours a node, from the seeds outwards; -1 takes all.
        replacement: with or without replacement, in training and in evaluation.
        batch_size: training nodes a minibatch, so a step of R ranks has R times as many.
        last_batch: drop or keep a last, smaller minibatch; the only one is always kept.
        test_fanout: as `fanout`, for evaluation; None is 20 a layer, for GIN the training fanout.
        test_batch_size: nodes a minibatch of evaluation; None is `batch_size`.
        cache: aggregates that stand for the last number of `fanout`.
        evaluate_with_cache: whether evaluation has them too; None: with GIN, not with SAGE and GCN (BatchGNN,
            section 4).
        macrobatch_size: minibatches sampled together, or "auto".
        fetch_size: minibatches whose features are gathered together, or "auto".
        memory_budget: bytes that the loader may take; None leaves it to the loader.
        prefetch: macrobatches prepared beside training.
        cache_folder: where the cache is kept: read if it is there, else written; None makes it in every run.
    """

    fanout: tuple[int, ...] = (15, 10, 5)
    replacement: Replacement = Replacement.WITH
    batch_size: int = 1024
    last_batch: LastMinibatch = LastMinibatch.DROP
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
class OptimiserConfig:
    """Adam."""

    learning_rate: float = 0.003
    weight_decay: float = 0.0


@dataclass(frozen=True)
class RunConfig:
    """What to train on, how long, and with what.

    Attributes:
        dataset: a name or path as `pyg_batchgnn.data.load_dataset` takes it; None is the default data set.
        epochs: passes over the training nodes.
        seed: decides initial weights, order, samples and dropout.
        threads: of torch and of the loader; None is one a core.
        precision: of features, activations and matrix products.
        matrix_product: of native layers; "auto" is decided when the run starts, and kept.
        malloc: see `pyg_batchgnn.train.malloc`.
        evaluate_every: epochs between two validations (the last epoch always has one).
        checkpoint_seconds: the longest time without a checkpoint inside an epoch.
    """

    dataset: str | None = None
    epochs: int = 20
    seed: int = 0
    threads: int | None = None
    precision: Precision = Precision.FLOAT32
    matrix_product: MatrixProduct = MatrixProduct.AUTO
    malloc: Malloc = Malloc.KEEP
    evaluate_every: int = 1
    checkpoint_seconds: float = 600.0


@dataclass(frozen=True)
class RanksConfig:
    """How the ranks that a launcher started share the work; of no meaning with one rank.

    Attributes:
        partition: who owns which node: a policy (random, contiguous, ldg, fennel) or the folder of a saved
            partition.
        hybrid: whether every rank has the whole topology, so that only features travel.
        feature_cache: bytes a rank for rows of other hosts that training needs most; None: no such cache.
        schedule: see `ScheduleKind`.
        backend: of torch.distributed.
        timeout: seconds that a rank waits for the others before it gives up with an error.
    """

    partition: str = "random"
    hybrid: bool = False
    feature_cache: int | None = None
    schedule: ScheduleKind = ScheduleKind.LOCAL
    backend: str = "gloo"
    timeout: float = 600.0


@dataclass(frozen=True)
class TrainConfig:
    """The whole configuration; checked when it is made.

    Raises:
        TrainError: a value is out of its range, or two of them disagree.
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    run: RunConfig = field(default_factory=RunConfig)
    ranks: RanksConfig = field(default_factory=RanksConfig)

    def __post_init__(self) -> None:
        _check_ranges(self)
        _check_fanouts(self)
        _check_cache(self)
        if self.model.kind is ModelKind.GAT and self.model.hidden % self.model.heads:
            raise TrainError(
                f"model.hidden is {self.model.hidden}, which {self.model.heads} heads cannot share; "
                "choose a multiple of model.heads"
            )
        if self.run.precision is Precision.BFLOAT16 and self.model.layers is LayerSource.PYG:
            raise TrainError(
                "run.precision is bfloat16, which PyG's layers do not train in on a CPU; "
                "choose model.layers=native or run.precision=float32"
            )

    @property
    def test_fanout(self) -> tuple[int, ...]:
        """Fanout of evaluation: 20 a layer, but for GIN that of training (BatchGNN, appendix E)."""
        if self.sampling.test_fanout is not None:
            return self.sampling.test_fanout
        return self.sampling.fanout if self.model.kind is ModelKind.GIN else (20,) * self.model.num_layers

    @property
    def evaluates_with_cache(self) -> bool:
        """Whether evaluation begins with cached aggregates."""
        sampling = self.sampling
        if sampling.cache is CacheKind.OFF or sampling.evaluate_with_cache is None:
            return sampling.cache is CacheKind.AGGREGATION and self.model.kind is ModelKind.GIN
        return sampling.evaluate_with_cache

    @property
    def test_batch_size(self) -> int:
        """Nodes a minibatch of evaluation."""
        return self.sampling.test_batch_size or self.sampling.batch_size


def _check_ranges(config: TrainConfig) -> None:
    model, sampling, optimiser, run = config.model, config.sampling, config.optimiser, config.run
    bounds: Bounds = {
        "model.num_layers": (model.num_layers, 1, _COUNT),
        "model.hidden": (model.hidden, 1, _COUNT),
        "model.heads": (model.heads, 1, _COUNT),
        "sampling.batch_size": (sampling.batch_size, 1, _COUNT),
        "sampling.test_batch_size": (sampling.test_batch_size, 1, _COUNT),
        "sampling.macrobatch_size": (sampling.macrobatch_size, 1, _COUNT),
        "sampling.fetch_size": (sampling.fetch_size, 1, _COUNT),
        "sampling.memory_budget": (sampling.memory_budget, 1, 2**63 - 1),
        "sampling.prefetch": (sampling.prefetch, 0, _COUNT),
        "optimiser.learning_rate": (optimiser.learning_rate, 0, math.inf),
        "optimiser.weight_decay": (optimiser.weight_decay, 0, math.inf),
        "run.epochs": (run.epochs, 1, _COUNT),
        "run.seed": (run.seed, 0, 2**64 - 1),
        "run.threads": (run.threads, 1, _THREADS),
        "run.evaluate_every": (run.evaluate_every, 1, _COUNT),
        "run.checkpoint_seconds": (run.checkpoint_seconds, 0, math.inf),
        "ranks.feature_cache": (config.ranks.feature_cache, 0, 2**63 - 1),
        "ranks.timeout": (config.ranks.timeout, 1, _SECONDS),
    }
    for name, (value, low, high) in bounds.items():
        if value is None or value == "auto":
            continue
        if not value >= low:
            raise TrainError(f"{name} must be at least {low}, got {value}")
        if value > high:
            raise TrainError(f"{name} must be at most {high}, got {value}")
    if not 0.0 <= model.dropout < 1.0:
        raise TrainError(f"model.dropout must be at least 0 and below 1, got {model.dropout}")


def _check_cache(config: TrainConfig) -> None:
    model, sampling = config.model, config.sampling
    if sampling.cache is CacheKind.OFF:
        for name, value in (
            ("evaluate_with_cache", sampling.evaluate_with_cache),
            ("cache_folder", sampling.cache_folder),
        ):
            if value is not None:
                raise TrainError(
                    f"sampling.{name} is {value}, but there is no cache; add --cache aggregation"
                )
        return
    because = None
    if model.layers is LayerSource.PYG:
        because = "PyG's layers aggregate what was sampled; choose --layers native"
    elif model.kind is ModelKind.GAT:
        because = "GAT weighs neighbours by what it has learned, so nothing can be aggregated beforehand"
    elif model.num_layers == 1:
        because = "it stands for the last hop, and a model of one layer has no other"
    if because is not None:
        raise TrainError(f"sampling.cache is {sampling.cache.value}, which is not possible: {because}")


def _check_fanouts(config: TrainConfig) -> None:
    for name, fanout in (("fanout", config.sampling.fanout), ("test_fanout", config.test_fanout)):
        if len(fanout) != config.model.num_layers:
            raise TrainError(
                f"sampling.{name} is {','.join(map(str, fanout))} ({len(fanout)} numbers) but the model has "
                f"{config.model.num_layers} layers; give one number a layer, or change model.num_layers"
            )
        if any(k < -1 for k in fanout):
            raise TrainError(
                f"sampling.{name} is {','.join(map(str, fanout))}; numbers must be 0 or more, or -1 for all"
            )
