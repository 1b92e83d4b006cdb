"""The whole configuration, which decides what a run computes, and its checks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pyg_batchgnn.train.config.choices import (
    CacheKind,
    ModelKind,
    RemoteKind,
    ScheduleKind,
    TaskKind,
)
from pyg_batchgnn.train.config.table import (
    FIELDS,
    EmbeddingConfig,
    ModelConfig,
    OptimiserConfig,
    RanksConfig,
    RunConfig,
    SamplingConfig,
    TaskConfig,
    shown,
)
from pyg_batchgnn.train.errors import TrainError

#: The fields that mean nothing unless links are predicted, and those without a cache.
_OF_LINKS = ("task.edge_type", "task.reverse_edge_type", "task.decoder", "task.negatives")
_OF_CACHE = ("sampling.evaluate_with_cache", "sampling.cache_folder")


@dataclass(frozen=True)
class TrainConfig:
    """The whole configuration. It is checked when it is made.

    Raises:
        TrainError: a value is out of bounds, or two values contradict each other.
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    embedding: EmbeddingConfig = field(default_factory=EmbeddingConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    run: RunConfig = field(default_factory=RunConfig)
    ranks: RanksConfig = field(default_factory=RanksConfig)

    def __post_init__(self) -> None:
        for path in FIELDS:
            _check_bounds(path, self.value(path))
        _check_fanout("sampling.fanout", self.sampling.fanout, self.model.num_layers)
        _check_fanout("sampling.test_fanout", self.test_fanout, self.model.num_layers)
        _check_cache(self)
        _check_heads(self.model)
        _check_remote(self)
        _check_class_weights(self.task)
        _check_links(self)

    def value(self, path: str) -> Any:
        """Returns the value of a field. ``path``: its section and name, as in "model.hidden"."""
        section, _, name = path.partition(".")
        return getattr(getattr(self, section), name)

    @property
    def test_fanout(self) -> tuple[int, ...]:
        """The fanout of evaluation: 20 at each hop; for GIN that of training (BatchGNN, appendix
        E)."""
        if self.sampling.test_fanout is not None:
            return self.sampling.test_fanout
        return self.sampling.fanout if self.model.kind is ModelKind.GIN else (20,) * self.model.num_layers

    @property
    def evaluates_with_cache(self) -> bool:
        """True if evaluation uses the cached aggregates."""
        sampling = self.sampling
        if sampling.cache is CacheKind.OFF or sampling.evaluate_with_cache is None:
            return sampling.cache is CacheKind.AGGREGATION and self.model.kind is ModelKind.GIN
        return sampling.evaluate_with_cache

    @property
    def test_batch_size(self) -> int:
        """Nodes per minibatch of evaluation."""
        return self.sampling.test_batch_size or self.sampling.batch_size


def refuse_given(config: TrainConfig, paths: Iterable[str], because: str) -> None:
    """Refuses fields that have another value than their default.

    Raises:
        TrainError: one has. The message names it, and ends with ``because``.
    """
    for path in paths:
        if (value := config.value(path)) != FIELDS[path].default:
            raise TrainError(f"{path} is {shown(value)}, {because}")


def _check_bounds(path: str, value: Any) -> None:
    """Raises TrainError for a number that is out of its bounds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return
    option = FIELDS[path].option
    if option.below < math.inf:
        if not option.least <= value < option.below:
            raise TrainError(f"{path} must be at least {option.least} and below {option.below}, got {value}")
        return
    if not value >= option.least:
        raise TrainError(f"{path} must be at least {option.least}, got {value}")
    if value > option.most:
        raise TrainError(f"{path} must be at most {option.most}, got {value}")


def _check_fanout(field: str, fanout: tuple[int, ...], num_layers: int) -> None:
    """Checks that a fanout has one number per layer, and each number's value."""
    shown = ",".join(map(str, fanout))
    if len(fanout) != num_layers:
        raise TrainError(
            f"{field} is {shown} ({len(fanout)} numbers), but the model has {num_layers} layers; "
            "give one number per layer, or change model.num_layers"
        )
    if any(k < -1 for k in fanout):
        raise TrainError(f"{field} is {shown}; numbers must be 0 or more, or -1 for all neighbours")


def _check_heads(model: ModelConfig) -> None:
    """Checks that the model can be built."""
    if model.kind is ModelKind.GAT and model.hidden % model.heads:
        raise TrainError(
            f"model.hidden is {model.hidden}, which {model.heads} heads cannot share; "
            "choose a multiple of model.heads"
        )


def _check_remote(config: TrainConfig) -> None:
    """Checks that the run can read historical embeddings, if it is to."""
    ranks = config.ranks
    if ranks.remote is RemoteKind.EXACT:
        return
    because = None
    if config.model.kind is ModelKind.GCN:
        because = (
            "GCN divides by degrees in the minibatch, so a row of one minibatch is none of another; choose "
            "--model sage, gin or gat"
        )
    elif ranks.schedule is not ScheduleKind.LOCAL:
        because = "a rank samples from the nodes that it owns; choose --schedule local"
    elif ranks.hybrid:
        because = "it samples within each rank's part, so no rank needs all edges; leave --hybrid out"
    elif ranks.feature_cache is not None:
        because = "features of halo nodes come from its own cache; leave --feature-cache out"
    elif config.sampling.cache is not CacheKind.OFF:
        because = "aggregates have no rows of halo nodes; leave --cache out"
    if because is not None:
        raise TrainError(f"ranks.remote is {ranks.remote.value}, which is not possible: {because}")


def _check_class_weights(task: TaskConfig) -> None:
    """Checks the weights of classes, and that they are given only where there are classes."""
    weights = task.class_weights
    if weights is None:
        return
    if task.kind is TaskKind.VALUES:
        raise TrainError("task.class_weights is given, but task.kind is values, which have no classes")
    for weight in () if weights == "balanced" else weights:
        if not 0.0 < weight < math.inf:
            raise TrainError(f"task.class_weights must be positive numbers, got {weight}")


def _check_links(config: TrainConfig) -> None:
    """Checks the options of links, and those that do not go with them."""
    task = config.task
    if task.kind is not TaskKind.LINKS:
        refuse_given(config, _OF_LINKS, "but no links are predicted; add --task link")
        return
    because = None
    if task.node_type is not None:
        because = f"task.node_type is {task.node_type}; name a relation with --edge-type"
    elif task.class_weights is not None:
        because = "task.class_weights is given; links have no classes"
    elif config.sampling.cache is not CacheKind.OFF:
        because = "aggregates hold the edges that a minibatch must not see; leave --cache out"
    elif config.ranks.remote is not RemoteKind.EXACT:
        because = "historical embeddings are for nodes; leave --remote out"
    if because is not None:
        raise TrainError(f"task.kind is link, which is not possible: {because}")


def _check_cache(config: TrainConfig) -> None:
    """Checks that the model can use the cache, and that its options are given only with a cache."""
    cache, model = config.sampling.cache, config.model
    if cache is CacheKind.OFF:
        refuse_given(config, _OF_CACHE, "but there is no cache; add --cache aggregation")
        return
    because = None
    if model.kind is ModelKind.GAT:
        because = "GAT weighs neighbours by learned values, so nothing can be aggregated before training"
    elif model.num_layers == 1:
        because = "it replaces the last hop, and a model of one layer has no other hop"
    if because is not None:
        raise TrainError(f"sampling.cache is {cache.value}, which is not possible: {because}")
