"""The jobs of ranks in test_typed.py."""

from __future__ import annotations

import torch

from pyg_batchgnn import AggregationCache
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore
from tests.cache.typed_cases import CACHED
from tests.store.job_typed import owners
from tests.support.reference_partition import split_dataset


def values() -> None:
    """Aggregates and fingerprints are those of one process, bit for bit."""
    with Communicator.create("cache", timeout=30) as comm:
        for number, (dataset, kinds) in enumerate(CACHED):
            part = split_dataset(dataset, owners(dataset, comm.size), comm.size, comm.rank)
            both = DistFeatureStore(part, comm, share=number % 2 == 0), DistGraphStore(part, comm)
            alone = AggregationCache.build(dataset.to_pyg(), kinds)
            for budget in (None, 2000):
                cache = AggregationCache.build(both, kinds, memory_budget=budget)
                assert cache.relations.keys() == alone.relations.keys()
                for relation, one in cache.relations.items():
                    node = part.original_ids(part.schema.type_number(relation[2]))
                    assert torch.equal(one.rows, alone.relations[relation].rows[node])
                    assert one.fingerprint == alone.relations[relation].fingerprint
            store = cache.add_to(both[0])
            for group, names in cache.names.items():
                assert names and store.own.attributes[group].keys() >= set(names)
