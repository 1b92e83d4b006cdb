"""Historical embeddings, as in DistGNN-MB: caches of halo nodes' rows that owners push to them."""

from pyg_batchgnn.history.caches import HistoricalCaches
from pyg_batchgnn.history.embedding_cache import EmbeddingCache, FoundRows
from pyg_batchgnn.history.features import FEATURES, HaloFeatures
from pyg_batchgnn.history.fetcher import OwnRowFetcher
from pyg_batchgnn.history.forward_pass import HistoricalPass
from pyg_batchgnn.history.halo import Halo
from pyg_batchgnn.history.message import PushedRows, decode, encode
from pyg_batchgnn.history.minibatch import HistoricalMinibatch
from pyg_batchgnn.history.sampler import HaloSampler
from pyg_batchgnn.history.settings import HistoricalSettings
from pyg_batchgnn.history.stats import HistoricalStats, LayerCounts, hit_rates

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
