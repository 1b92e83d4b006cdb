"""Historical embeddings, as in DistGNN-MB: caches of halo nodes' rows that owners push to them."""

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
from pyg_batchgnn.history.minibatch import HistoricalMinibatch, HistoricalPass, OwnRowFetcher

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
