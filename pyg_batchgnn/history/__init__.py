"""Historical embeddings, as in DistGNN-MB: caches of halo nodes' rows that owners push to them."""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.history.caches import (
        HistoricalCaches,
        HistoricalSettings,
        HistoricalStats,
        LayerCounts,
        PushedRows,
        decode,
        encode,
        hit_rates,
    )
    from pyg_batchgnn.history.embedding_cache import EmbeddingCache, FoundRows
    from pyg_batchgnn.history.halo import FEATURES, Halo, HaloFeatures, HaloSampler
    from pyg_batchgnn.history.halo_minibatch import HistoricalMinibatch, HistoricalPass, OwnRowFetcher
else:
    __getattr__ = late_names(__name__)

__all__ = [
    "FEATURES",
    "EmbeddingCache",
    "FoundRows",
    "Halo",
    "HaloFeatures",
    "HaloSampler",
    "HistoricalCaches",
    "HistoricalMinibatch",
    "HistoricalPass",
    "HistoricalSettings",
    "HistoricalStats",
    "LayerCounts",
    "OwnRowFetcher",
    "PushedRows",
    "decode",
    "encode",
    "hit_rates",
]
