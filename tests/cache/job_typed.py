"""The jobs of ranks in test_typed.py."""

from __future__ import annotations

from typing import Any

import torch

from pyg_batchgnn import AggregationCache, MacrobatchNeighborLoader
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore
from tests.cache.typed_cases import CACHED
from tests.store.job_typed import owners
from tests.support.reference_partition import split_dataset


def values(folder: str) -> None:
    """Aggregates and fingerprints are those of one process, bit for bit, also when loaded."""
    with Communicator.create("cache", timeout=30) as comm:
        for number, (dataset, kinds) in enumerate(CACHED):
            part = split_dataset(dataset, owners(dataset, comm.size), comm.size, comm.rank)
            both = DistFeatureStore(part, comm, share=number % 2 == 0), DistGraphStore(part, comm)
            alone = AggregationCache.build(dataset.to_pyg(), kinds)
            for cache in (
                AggregationCache.build(both, kinds),
                AggregationCache.build(both, kinds, memory_budget=2000),
                AggregationCache.load(f"{folder}/alone {number}", both, kind=kinds),
            ):
                assert cache.relations.keys() == alone.relations.keys()
                for relation, one in cache.relations.items():
                    node = part.original_ids(part.schema.type_number(relation[2]))
                    assert torch.equal(one.rows, alone.relations[relation].rows[node])
                    assert one.fingerprint == alone.relations[relation].fingerprint
            cache.save(f"{folder}/ranks {number}")
            store = cache.add_to(both[0])
            for group, names in cache.names.items():
                assert names and store.own.attributes[group].keys() >= set(names)


def loaders() -> None:
    """Minibatches over ranks carry the aggregates that those of one process carry."""
    with Communicator.create("cache", timeout=30) as comm:
        for number, (dataset, kinds) in enumerate(CACHED[:3]):
            part = split_dataset(dataset, owners(dataset, comm.size), comm.size, comm.rank)
            both = DistFeatureStore(part, comm), DistGraphStore(part, comm)
            data = dataset.to_pyg()
            arguments: dict[str, Any] = {
                "num_neighbors": {one: [3, 4 * (one in kinds)] for one in dataset.schema.relations},
                "input_nodes": (dataset.schema.node_types[0], torch.arange(dataset.node_sets[0].num_nodes)),
                "batch_size": 6,
                "seed": 1,
                "export": "native",
            }
            alone = MacrobatchNeighborLoader(
                data, aggregation_cache=AggregationCache.build(data, kinds), **arguments
            )
            over_ranks = MacrobatchNeighborLoader(
                both,
                aggregation_cache=AggregationCache.build(both, kinds),
                schedule=("local", "global")[number % 2],
                feature_cache=(None, 500)[number % 2],
                **arguments,
            )
            for batch in over_ranks:
                wanted = alone(batch.input_id.tolist())
                for one, other in zip(batch.nodes, wanted.nodes, strict=True):
                    assert torch.equal(one.node, other.node)
                for name in dataset.schema.node_types:
                    rows, theirs = batch.attributes_of(name), wanted.attributes_of(name)
                    assert rows.tables.keys() >= theirs.tables.keys()
                    for held in theirs.tables:
                        assert torch.equal(rows.gather(held), theirs.gather(held))
