"""The aggregation cache of a run: made, or read where it was kept."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from pyg_batchgnn.cache import Aggregation, AggregationCache
from pyg_batchgnn.train.config import CacheKind, ModelKind, TrainConfig

#: What the first layer of a model aggregates by.
OF_MODEL = {
    ModelKind.SAGE: Aggregation.MEAN,
    ModelKind.GCN: Aggregation.SYMMETRIC,
    ModelKind.GIN: Aggregation.SUM,
}


def aggregation_cache(
    config: TrainConfig, data: Any, exists: bool
) -> tuple[AggregationCache | None, list[str]]:
    """The run's cache, None where it has none, and what the user should know of it; over ranks collective.

    Args:
        config: of the run.
        data: as `AggregationCache.build` takes it.
        exists: whether the first rank sees the folder that the run keeps its cache in.

    Raises:
        DatasetError: what is kept there is of another graph, or damaged.
    """
    sampling = config.sampling
    if sampling.cache is CacheKind.OFF:
        return None, []
    kind, began = OF_MODEL[config.model.kind], time.perf_counter()
    how: dict[str, Any] = {
        "memory_budget": sampling.memory_budget,
        "threads": config.run.threads,
        "progress": sys.stderr.isatty(),
    }
    if sampling.cache_folder is not None and exists:
        cache, origin = AggregationCache.load(sampling.cache_folder, data, kind=kind, **how), "read"
    else:
        cache, origin = AggregationCache.build(data, kind, **how), "made"
        if sampling.cache_folder is not None:
            cache.save(sampling.cache_folder)
    seconds, size = time.perf_counter() - began, cache.nbytes / 2**20
    return cache, [
        f"aggregates by {kind.value} {origin} in {seconds:.1f} s, {size:,.1f} MiB on the first rank"
    ]


def kept(config: TrainConfig) -> bool:
    """Whether the folder that a run keeps its cache in is there."""
    folder = config.sampling.cache_folder
    return folder is not None and Path(folder).expanduser().exists()
