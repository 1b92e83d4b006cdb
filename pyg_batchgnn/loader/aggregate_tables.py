"""The aggregates that minibatches carry besides the attributes of the user's data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch_geometric.data import Data

from pyg_batchgnn.cache import AggregationCache
from pyg_batchgnn.store import CscGraph, DistFeatureStore, TypedGraph

_ANEW = "make one of it: AggregationCache.build(data, kind)"


def cached_tables(cache: AggregationCache, data: Any, graph: TypedGraph) -> Mapping[str, Tensor]:
    """Returns the aggregates of all nodes by name, in one process.

    Args:
        cache: the aggregates.
        data: the user's data.
        graph: its graph.

    Raises:
        ValueError: the cache is not of this data.
    """
    if cache.store is not None:
        raise ValueError(f"cache holds one rank's aggregates, but data is a graph held whole; {_ANEW}")
    nodes, columns = cache.rows.shape
    if isinstance(data, Data):
        held = (data.num_nodes, data.x.shape[-1] if data.x is not None else columns)
        if held != (nodes, columns):
            raise ValueError(
                f"cache is of {nodes} nodes with {columns} feature columns, but data has {held[0]} nodes "
                f"with {held[1]}; {_ANEW}"
            )
        if data.x is not None:
            cache.check_data(data, CscGraph(graph.relations[0]))
        if cache.attribute in data:
            raise ValueError(f"data has an attribute {cache.attribute!r} already; rename it")
    return cache.tables()


def cached_store(cache: AggregationCache, features: DistFeatureStore) -> DistFeatureStore:
    """Returns the feature store with the aggregates as one more attribute.

    Raises:
        ValueError: the cache is not of this store.
    """
    if cache.store is not features:
        raise ValueError(f"cache was not made of the feature store that the loader is given; {_ANEW}")
    return cache.add_to(features)
