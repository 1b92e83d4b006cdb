"""Aggregates of the input features, made before training (BatchGNN, section 3, appendices B, C)."""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.cache.aggregation_cache import AggregationCache as AggregationCache
    from pyg_batchgnn.cache.all_nodes import AllNodes as AllNodes
    from pyg_batchgnn.cache.build import Aggregation as Aggregation
    from pyg_batchgnn.cache.folder import is_aggregation_cache as is_aggregation_cache
    from pyg_batchgnn.cache.folder import verify_aggregation_cache as verify_aggregation_cache
else:
    __getattr__ = late_names(__name__)
