"""The graph of a run, as its loaders read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from pyg_batchgnn.cache import AggregationCache
from pyg_batchgnn.loader import MacrobatchNeighborLoader
from pyg_batchgnn.train.config import CacheKind, LastMinibatch, LayerSource, ScheduleKind, TrainConfig
from pyg_batchgnn.train.model import GraphNetwork


@dataclass(frozen=True)
class MinibatchSettings:
    """Which minibatches a loader makes.

    Attributes:
        fanout: neighbours a node by hop.
        size: nodes a minibatch.
        shuffle: whether nodes come in another order in each epoch.
        last: what becomes of nodes that do not fill a minibatch.
        schedule: which rank gets which.
        cached: whether the run's cache stands for the last hop.
        feature_cache: bytes a rank for rows of other hosts; None: no cache. Of no meaning with one rank.
    """

    fanout: tuple[int, ...]
    size: int
    shuffle: bool
    last: LastMinibatch
    schedule: ScheduleKind
    cached: bool
    feature_cache: int | None = None

    @classmethod
    def of_training(cls, config: TrainConfig, last: LastMinibatch) -> MinibatchSettings:
        """Shuffled ones."""
        sampling, ranks = config.sampling, config.ranks
        return cls(
            sampling.fanout,
            sampling.batch_size,
            True,
            last,
            ranks.schedule,
            cached=sampling.cache is CacheKind.AGGREGATION,
            feature_cache=ranks.feature_cache,
        )

    @classmethod
    def of_evaluation(cls, config: TrainConfig) -> MinibatchSettings:
        """The same in every evaluation and on any number of ranks, with every node in one of them."""
        fanout, size, cached = config.test_fanout, config.test_batch_size, config.evaluates_with_cache
        return cls(fanout, size, False, LastMinibatch.KEEP, ScheduleKind.GLOBAL, cached)


class LabelSource(Protocol):
    """Where the labels of a minibatch come from."""

    def __call__(self, network: GraphNetwork, batch: Any) -> Tensor:
        """[S] int64, of the minibatch's seeds."""


class RunGraph(Protocol):
    """A graph held whole, or in parts over the ranks.

    Attributes:
        notes: what the user should know of it.
    """

    @property
    def notes(self) -> list[str]: ...

    def loader(self, nodes: Tensor, batches: MinibatchSettings) -> MacrobatchNeighborLoader:
        """Minibatches of `nodes`, [n] original ids.

        Raises:
            TrainError: the loader refuses an option.
        """

    def labels(self, network: GraphNetwork, batch: Any) -> Tensor:
        """See `LabelSource`."""


def loader_arguments(
    config: TrainConfig, nodes: Tensor, batches: MinibatchSettings, cache: AggregationCache | None
) -> dict[str, Any]:
    """What every run's `MacrobatchNeighborLoader` is given."""
    sampling = config.sampling
    return {
        "num_neighbors": list(batches.fanout),
        "input_nodes": nodes.to(torch.int64),
        "batch_size": batches.size,
        "shuffle": batches.shuffle,
        "drop_last": batches.last is LastMinibatch.DROP,
        "macrobatch_size": sampling.macrobatch_size,
        "fetch_size": sampling.fetch_size,
        "memory_budget": sampling.memory_budget,
        "prefetch": sampling.prefetch,
        "aggregation_cache": cache if batches.cached else None,
        "export": "native" if config.model.layers is LayerSource.NATIVE else "pyg",
    }
