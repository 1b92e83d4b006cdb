"""Jobs of the ranks in test_hybrid.py."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.partition import Part, move, share_attributes
from pyg_batchgnn.store import DistGraphStore, HybridTopology, TypedGraph, replicate_topology
from tests.store.job_typed import data_sets, owners
from tests.support.reference_partition import graph_of, internal_ids_by_type, split_dataset
from tests.support.tiny_datasets import equal


def everywhere(round_bytes: int) -> None:
    move.ROUND_BYTES = round_bytes
    with Communicator.create("hybrid", timeout=20) as comm:
        for dataset in data_sets():
            owner = owners(dataset, comm.size)
            part = split_dataset(dataset, owner, comm.size, comm.rank)
            found = replicate_topology(part, comm)
            _check(found, graph_of(dataset), owner, part)
            own, hybrid = DistGraphStore(part, comm), DistGraphStore(part, comm, found)
            assert "partitioned" in repr(own) and "hybrid" in repr(hybrid)
            for number, ids in enumerate(internal_ids_by_type(owner, part.book)):
                for store in (own, hybrid):
                    assert torch.equal(store.internal_ids(torch.arange(len(ids)), number), ids)
            shared = share_attributes(part, comm)
            assert sorted(shared) == comm.ranks_of_host
            for rank, found_tables in shared.items():
                theirs = split_dataset(dataset, owner, comm.size, rank).attributes
                assert found_tables.keys() == theirs.keys()
                for group, tables in theirs.items():
                    assert found_tables[group].keys() == tables.keys()
                    assert all(equal(found_tables[group][name], table) for name, table in tables.items())


def _check(found: HybridTopology, want: TypedGraph, owner: list[Tensor], part: Part) -> None:
    assert found.graph.schema == want.schema and found.graph.num_nodes == want.num_nodes
    for got, edges in zip(found.graph.relations, want.relations, strict=True):
        assert torch.equal(got.indptr, edges.indptr)
        assert torch.equal(got.indices.long(), edges.indices.long()) and got.indices.dtype == torch.int32
        assert got.edge_ids is not None and got.edge_ids.dtype == torch.int32
        assert torch.equal(got.edge_ids.long(), edges.explicit_edge_ids().long())
    ids = internal_ids_by_type(owner, part.book)
    for internal, wanted in zip(found.internal, ids, strict=True):
        assert torch.equal(internal, wanted.to(part.book.id_dtype))
