"""Historical embeddings, as in DistGNN-MB: caches of halo nodes' rows that owners push to them."""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.history.caches import HistoricalCaches as HistoricalCaches
    from pyg_batchgnn.history.caches import HistoricalSettings as HistoricalSettings
    from pyg_batchgnn.history.caches import HistoricalStats as HistoricalStats
    from pyg_batchgnn.history.caches import LayerCounts as LayerCounts
    from pyg_batchgnn.history.caches import PushedRows as PushedRows
    from pyg_batchgnn.history.caches import decode as decode
    from pyg_batchgnn.history.caches import encode as encode
    from pyg_batchgnn.history.caches import hit_rates as hit_rates
    from pyg_batchgnn.history.embedding_cache import EmbeddingCache as EmbeddingCache
    from pyg_batchgnn.history.halo import HaloSampler as HaloSampler
    from pyg_batchgnn.history.halo_minibatch import HistoricalMinibatch as HistoricalMinibatch
    from pyg_batchgnn.history.halo_minibatch import HistoricalPass as HistoricalPass
    from pyg_batchgnn.history.halo_minibatch import OwnRowFetcher as OwnRowFetcher
else:
    __getattr__ = late_names(__name__)
