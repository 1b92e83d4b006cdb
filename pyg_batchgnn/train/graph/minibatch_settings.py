"""The settings of a loader's minibatches."""

from __future__ import annotations

from dataclasses import dataclass

from pyg_batchgnn.train.config import CacheKind, LastMinibatch, RemoteKind, ScheduleKind, TrainConfig


@dataclass(frozen=True)
class MinibatchSettings:
    """The minibatches that a loader makes.

    Attributes:
        fanout: neighbours per node at each hop.
        size: seed nodes per minibatch.
        shuffle: True if each epoch visits the nodes in another order.
        last: the treatment of nodes that do not fill a minibatch.
        schedule: the assignment of minibatches to ranks.
        cached: True if the run's aggregates replace the last hop.
        feature_cache: bytes per rank for rows of other hosts; None means no cache. Ignored with one
            rank.
        historical: True if rows of halo nodes come from the run's historical embeddings. Ignored
            with one rank.
    """

    fanout: tuple[int, ...]
    size: int
    shuffle: bool
    last: LastMinibatch
    schedule: ScheduleKind
    cached: bool
    feature_cache: int | None = None
    historical: bool = False

    @classmethod
    def of_training(cls, config: TrainConfig, last: LastMinibatch) -> MinibatchSettings:
        """Returns the settings of training, with shuffled nodes."""
        sampling, ranks = config.sampling, config.ranks
        return cls(
            sampling.fanout,
            sampling.batch_size,
            True,
            last,
            ranks.schedule,
            cached=sampling.cache is CacheKind.AGGREGATION,
            feature_cache=ranks.feature_cache,
            historical=ranks.remote is RemoteKind.HISTORICAL,
        )

    @classmethod
    def of_evaluation(cls, config: TrainConfig) -> MinibatchSettings:
        """Returns the settings of evaluation.

        Every node is in one minibatch. The minibatches are the same in every evaluation and on any
        number of ranks.
        """
        fanout, size, cached = config.test_fanout, config.test_batch_size, config.evaluates_with_cache
        return cls(fanout, size, False, LastMinibatch.KEEP, ScheduleKind.GLOBAL, cached)
