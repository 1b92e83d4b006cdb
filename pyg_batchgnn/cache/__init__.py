"""Aggregates of the input features, made before training (BatchGNN, section 3, appendices B, C)."""

from pyg_batchgnn.cache.aggregation_cache import AggregationCache
from pyg_batchgnn.cache.all_nodes import AllNodes
from pyg_batchgnn.cache.cuts import free_bytes, number_of_bytes, parse_bytes
from pyg_batchgnn.cache.folder import is_aggregation_cache, verify_aggregation_cache
from pyg_batchgnn.cache.kinds import Aggregation

__all__ = [
    "Aggregation",
    "AggregationCache",
    "AllNodes",
    "free_bytes",
    "is_aggregation_cache",
    "number_of_bytes",
    "parse_bytes",
    "verify_aggregation_cache",
]
