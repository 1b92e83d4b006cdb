"""The aggregation cache of a run: built anew, or read from the folder where it is kept."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from pyg_batchgnn.cache import Aggregation, AggregationCache
from pyg_batchgnn.train.config import CacheKind, ModelKind, TrainConfig

#: The aggregation of each model's first layer. GAT's depends on learned values.
AGGREGATION_OF_MODEL = {
    ModelKind.SAGE: Aggregation.MEAN,
    ModelKind.GCN: Aggregation.SYMMETRIC,
    ModelKind.GIN: Aggregation.SUM,
}


def aggregation_cache(
    config: TrainConfig, data: Any, exists: bool
) -> tuple[AggregationCache | None, list[str]]:
    """Builds or reads the run's cache; collective.

    Args:
        config: of the run.
        data: as `AggregationCache.build` takes it.
        exists: True if the folder of the cache exists for the first rank.

    Returns:
        The cache, or None in a run without one, and lines about it that the user should read.

    Raises:
        DatasetError: the folder's cache is of another graph, or damaged.
    """
    sampling = config.sampling
    if sampling.cache is CacheKind.OFF:
        return None, []
    kind, began = AGGREGATION_OF_MODEL[config.model.kind], time.perf_counter()
    options: dict[str, Any] = {
        "memory_budget": sampling.memory_budget,
        "threads": config.run.threads,
        "progress": sys.stderr.isatty(),
    }
    if sampling.cache_folder is not None and exists:
        cache, origin = AggregationCache.load(sampling.cache_folder, data, kind=kind, **options), "read"
    else:
        cache, origin = AggregationCache.build(data, kind, **options), "built"
        if sampling.cache_folder is not None:
            cache.save(sampling.cache_folder)
    seconds, size = time.perf_counter() - began, cache.nbytes / 2**20
    return cache, [
        f"aggregates by {kind.value} {origin} in {seconds:.1f} s, {size:,.1f} MiB on the first rank"
    ]


def aggregates_exist(config: TrainConfig) -> bool:
    """Returns whether the folder of the run's cache exists."""
    folder = config.sampling.cache_folder
    return folder is not None and Path(folder).expanduser().exists()
