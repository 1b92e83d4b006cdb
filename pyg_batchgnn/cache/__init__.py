"""Aggregates of the input features, made before training (BatchGNN, section 3, appendices B, C)."""

from pyg_batchgnn.cache.aggregation_cache import AggregationCache
from pyg_batchgnn.cache.all_nodes import AllNodes
from pyg_batchgnn.cache.folder import is_aggregation_cache, verify_aggregation_cache
from pyg_batchgnn.cache.kinds import Aggregation

__all__ = ["Aggregation", "AggregationCache", "AllNodes", "is_aggregation_cache", "verify_aggregation_cache"]
