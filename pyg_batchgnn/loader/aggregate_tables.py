"""The aggregates that minibatches carry besides the attributes of the user's data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn.cache import AggregationCache
from pyg_batchgnn.data import Group, Schema
from pyg_batchgnn.sample import MinibatchPlan, SamplingPlan
from pyg_batchgnn.store import DistFeatureStore, TypedGraph

_ANEW = "make one of it: AggregationCache.build(data, kind)"


def cached_tables(
    cache: AggregationCache, data: Any, graph: TypedGraph
) -> Mapping[Group, Mapping[str, Tensor]]:
    """Returns the aggregates of all nodes by group and name, in one process.

    Args:
        cache: the aggregates.
        data: the user's data.
        graph: its graph.

    Raises:
        ValueError: the cache is not of this data.
    """
    if cache.store is not None:
        raise ValueError(f"cache holds one rank's aggregates, but data is a graph held whole; {_ANEW}")
    tables = cache.tables()
    if isinstance(data, (Data, HeteroData)):
        _check_sizes(cache, data, graph)
        cache.check_data(data, graph)
        for group, named in tables.items():
            store = data if isinstance(data, Data) else data[group.name]
            if taken := [name for name in named if name in store]:
                raise ValueError(f"data has an attribute {taken[0]!r} already; rename it")
    return tables


def cached_store(cache: AggregationCache, features: DistFeatureStore) -> DistFeatureStore:
    """Returns the feature store with the aggregates as further attributes.

    Raises:
        ValueError: the cache is not of this store.
    """
    if cache.store is not features:
        raise ValueError(f"cache was not made of the feature store that the loader is given; {_ANEW}")
    return cache.add_to(features)


def without_cached_hop(cache: AggregationCache, plan: MinibatchPlan, schema: Schema) -> SamplingPlan:
    """Returns a plan without its last hop, for which the aggregates stand.

    Raises:
        ValueError: the cache is of a graph with another schema, the plan has one hop at most, or
            its last hop has a fanout for a relation that has no aggregates.
    """
    _check_schema(cache, schema)
    assert isinstance(plan, SamplingPlan)
    shorter = plan.without_last_hop()
    for relation in cache.schema.relations:
        fanout = plan.fanouts_of(relation)[-1]
        if fanout and relation not in cache.relations:
            raise ValueError(
                f"the last hop has the fanout {fanout} for the relation {relation}, of which the aggregation "
                f"cache has no aggregates: give it the fanout 0 there, or a kind in AggregationCache.build"
            )
    return shorter


def _check_schema(cache: AggregationCache, schema: Schema) -> None:
    if cache.schema != schema:
        raise ValueError(
            f"cache is of a graph with the relations {list(cache.schema.relations)}, but data has "
            f"{list(schema.relations)}; {_ANEW}"
        )


def _check_sizes(cache: AggregationCache, data: Data | HeteroData, graph: TypedGraph) -> None:
    """Raises ValueError unless the numbers of nodes and columns are those of the data."""
    for relation, one in cache.relations.items():
        nodes, columns = one.rows.shape
        x = data.x if isinstance(data, Data) else data[relation[0]].get("x")
        held = graph.num_nodes[graph.schema.type_number(relation[2])]
        width = columns if x is None else x.shape[-1]
        if (held, width) != (nodes, columns):
            of = f" in {relation}" if graph.schema.has_names else ""
            raise ValueError(
                f"cache is of {nodes} nodes with {columns} feature columns{of}, but data has {held} nodes "
                f"with {width}; {_ANEW}"
            )
