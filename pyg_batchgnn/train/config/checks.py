"""Checks of the values of a configuration, alone and together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pyg_batchgnn.train.config.choices import (
    CacheKind,
    ModelKind,
    RemoteKind,
    ScheduleKind,
    TaskKind,
)
from pyg_batchgnn.train.config.sections import (
    ModelConfig,
    RanksConfig,
    SamplingConfig,
    TaskConfig,
)
from pyg_batchgnn.train.errors import TrainError

#: The largest values that kernels, machines and torch's milliseconds take.
_COUNT, _THREADS, _SECONDS = 2**31 - 1, 4096, 2_000_000
#: The largest step size. Adam's first step takes ten times as much, which is a float32.
_RATE = 1e37

#: The least and the largest value of each number.
_BOUNDS: dict[str, tuple[float, float]] = {
    "model.num_layers": (1, _COUNT),
    "model.hidden": (1, _COUNT),
    "model.heads": (1, _COUNT),
    "sampling.batch_size": (1, _COUNT),
    "sampling.test_batch_size": (1, _COUNT),
    "sampling.macrobatch_size": (1, _COUNT),
    "sampling.fetch_size": (1, _COUNT),
    "sampling.memory_budget": (1, 2**63 - 1),
    "sampling.prefetch": (0, _COUNT),
    "task.negatives": (1, _COUNT),
    "embedding.columns": (1, _COUNT),
    "embedding.learning_rate": (0, _RATE),
    "optimiser.learning_rate": (0, _RATE),
    "optimiser.weight_decay": (0, _RATE),
    "run.epochs": (1, _COUNT),
    "run.seed": (0, 2**64 - 1),
    "run.threads": (1, _THREADS),
    "run.evaluate_every": (1, _COUNT),
    "run.patience": (1, _COUNT),
    "run.checkpoint_seconds": (0, math.inf),
    "ranks.feature_cache": (0, 2**63 - 1),
    "ranks.cache_lines": (1, 2**30 - 1),
    "ranks.life_span": (1, _COUNT),
    "ranks.push": (1, _COUNT),
    "ranks.delay": (1, _COUNT),
    "ranks.timeout": (1, _SECONDS),
}


def check_ranges(sections: Mapping[str, Any]) -> None:
    """Checks each number of the sections, by their names, against its bounds.

    Raises:
        TrainError: a number is out of bounds.
    """
    for name, (low, high) in _BOUNDS.items():
        section, _, field = name.partition(".")
        value = getattr(sections[section], field)
        if value in (None, "auto", "all"):
            continue
        if not value >= low:
            raise TrainError(f"{name} must be at least {low}, got {value}")
        if value > high:
            raise TrainError(f"{name} must be at most {high}, got {value}")
    dropout = sections["model"].dropout
    if not 0.0 <= dropout < 1.0:
        raise TrainError(f"model.dropout must be at least 0 and below 1, got {dropout}")


def check_fanout(field: str, fanout: tuple[int, ...], num_layers: int) -> None:
    """Checks that a fanout has one number per layer, and each number's value.

    Raises:
        TrainError: it has another number of entries, or an entry below -1.
    """
    shown = ",".join(map(str, fanout))
    if len(fanout) != num_layers:
        raise TrainError(
            f"{field} is {shown} ({len(fanout)} numbers), but the model has {num_layers} layers; "
            "give one number per layer, or change model.num_layers"
        )
    if any(k < -1 for k in fanout):
        raise TrainError(f"{field} is {shown}; numbers must be 0 or more, or -1 for all neighbours")


def check_model(model: ModelConfig) -> None:
    """Checks that the model can be built.

    Raises:
        TrainError: the heads cannot share the hidden columns.
    """
    if model.kind is ModelKind.GAT and model.hidden % model.heads:
        raise TrainError(
            f"model.hidden is {model.hidden}, which {model.heads} heads cannot share; "
            "choose a multiple of model.heads"
        )


def check_remote(model: ModelConfig, sampling: SamplingConfig, ranks: RanksConfig) -> None:
    """Checks that the run can read historical embeddings, if it is to.

    Raises:
        TrainError: the model or another option does not go with them.
    """
    if ranks.remote is RemoteKind.EXACT:
        return
    because = None
    if model.kind is ModelKind.GCN:
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
    elif sampling.cache is not CacheKind.OFF:
        because = "aggregates have no rows of halo nodes; leave --cache out"
    if because is not None:
        raise TrainError(f"ranks.remote is {ranks.remote.value}, which is not possible: {because}")


def check_task(task: TaskConfig) -> None:
    """Checks the weights of classes, and that they are given only where there are classes.

    Raises:
        TrainError: a weight is not positive and finite, or the task predicts values.
    """
    weights = task.class_weights
    if weights is None:
        return
    if task.kind is TaskKind.VALUES:
        raise TrainError("task.class_weights is given, but task.kind is values, which have no classes")
    for weight in () if weights == "balanced" else weights:
        if not 0.0 < weight < math.inf:
            raise TrainError(f"task.class_weights must be positive numbers, got {weight}")


def check_links(task: TaskConfig, sampling: SamplingConfig, ranks: RanksConfig) -> None:
    """Checks the options of links, and those that do not go with them.

    Raises:
        TrainError: an option is given for nodes, or does not go with links.
    """
    if task.kind is not TaskKind.LINKS:
        _refuse_link_options(task)
        return
    because = None
    if task.node_type is not None:
        because = f"task.node_type is {task.node_type}; name a relation with --edge-type"
    elif task.class_weights is not None:
        because = "task.class_weights is given; links have no classes"
    elif sampling.cache is not CacheKind.OFF:
        because = "aggregates hold the edges that a minibatch must not see; leave --cache out"
    elif ranks.remote is not RemoteKind.EXACT:
        because = "historical embeddings are for nodes; leave --remote out"
    if because is not None:
        raise TrainError(f"task.kind is link, which is not possible: {because}")


def _refuse_link_options(task: TaskConfig) -> None:
    options = {
        "edge_type": ",".join(task.edge_type or ()),
        "reverse_edge_type": ",".join(task.reverse_edge_type or ()),
        "decoder": "" if task.decoder is TaskConfig.decoder else task.decoder.value,
        "negatives": "" if task.negatives == TaskConfig.negatives else task.negatives,
    }
    for name, value in options.items():
        if value != "":
            raise TrainError(f"task.{name} is {value}, but no links are predicted; add --task link")


def check_cache(model: ModelConfig, sampling: SamplingConfig) -> None:
    """Checks that the model can use the cache, and that its options are given only with a cache.

    Raises:
        TrainError: the model cannot use it, or an option of the cache is given without one.
    """
    if sampling.cache is CacheKind.OFF:
        _refuse_cache_options(sampling)
        return
    because = None
    if model.kind is ModelKind.GAT:
        because = "GAT weighs neighbours by learned values, so nothing can be aggregated before training"
    elif model.num_layers == 1:
        because = "it replaces the last hop, and a model of one layer has no other hop"
    if because is not None:
        raise TrainError(f"sampling.cache is {sampling.cache.value}, which is not possible: {because}")


def _refuse_cache_options(sampling: SamplingConfig) -> None:
    options = {
        "evaluate_with_cache": sampling.evaluate_with_cache,
        "cache_folder": sampling.cache_folder,
    }
    for name, value in options.items():
        if value is not None:
            raise TrainError(f"sampling.{name} is {value}, but there is no cache; add --cache aggregation")
