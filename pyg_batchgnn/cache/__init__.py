"""Aggregates of the input features, made before training (BatchGNN, section 3, appendices B, C)."""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.cache.aggregation_cache import AggregationCache
    from pyg_batchgnn.cache.all_nodes import AllNodes
    from pyg_batchgnn.cache.build import Aggregation
    from pyg_batchgnn.cache.folder import is_aggregation_cache, verify_aggregation_cache
else:
    __getattr__ = late_names(__name__)

__all__ = ["Aggregation", "AggregationCache", "AllNodes", "is_aggregation_cache", "verify_aggregation_cache"]
