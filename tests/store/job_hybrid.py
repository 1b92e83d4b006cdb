"""Jobs of the ranks in test_hybrid.py."""

from __future__ import annotations

import torch

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.partition import bounded, share_attributes
from pyg_batchgnn.store import CscGraph, replicate_topology
from tests.partition.job_partition import CASES, expected, graph
from tests.support.reference_partition import internal_ids


def whole_graph_everywhere(round_bytes: int) -> None:
    bounded.ROUND_BYTES = round_bytes
    with Communicator.create("hybrid", timeout=20) as comm:
        for seed, nodes, edges, skew in CASES:
            dataset = graph(seed, nodes, edges, skew=skew)
            owner = torch.randint(0, comm.size, (nodes,), generator=torch.Generator().manual_seed(seed))
            part = expected(dataset, owner, comm.size, comm.rank)
            found = replicate_topology(part, comm)
            want = CscGraph.from_edge_index(dataset.edge_index, nodes)
            ids = torch.arange(edges) if want.edge_ids is None else want.edge_ids
            assert torch.equal(found.graph.indptr, want.indptr)
            assert torch.equal(found.graph.indices, want.indices)
            assert found.graph.indices.dtype == want.indices.dtype
            assert found.graph.edge_ids is not None and torch.equal(found.graph.edge_ids, ids.to(torch.int32))
            assert torch.equal(found.internal, internal_ids(owner).to(part.book.id_dtype))
            found_attributes = share_attributes(part, comm)
            assert sorted(found_attributes) == comm.ranks_of_host
            for rank, shared in found_attributes.items():
                theirs = expected(dataset, owner, comm.size, rank).attributes
                assert shared.keys() == theirs.keys()
                for group, tables in theirs.items():
                    assert shared[group].keys() == tables.keys()
                    for name, table in tables.items():
                        got = shared[group][name]
                        assert got.dtype == table.dtype and torch.equal(got, table)
