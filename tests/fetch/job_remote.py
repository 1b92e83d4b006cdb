"""The jobs of ranks in test_remote.py."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.data import EDGES, NODES
from pyg_batchgnn.fetch import FetchGroup, RemoteFetcher
from pyg_batchgnn.sample import Layout, MacrobatchSampler, Replacement, SampledMinibatch, SamplingPlan
from pyg_batchgnn.store import CscGraph, DistFeatureStore
from tests.support.bare_minibatches import only_nodes
from tests.support.partitioned_graphs import CASES, Case, owners, part_of, whole
from tests.support.reference_partition import internal_ids

FANOUTS = (3, 2)


def sampled(case: Case, rank: int, number: int, layout: Layout) -> list[SampledMinibatch]:
    """Returns a rank's minibatches in original ids; one is empty, and one rank has only such."""
    data = whole(case)
    graph = CscGraph.from_edge_index(data.edge_index, case.nodes)
    sampler = MacrobatchSampler(graph, SamplingPlan(FANOUTS, Replacement.WITH), 5, 1, layout)
    draw = torch.Generator().manual_seed(rank)
    sizes = [0] * number if rank == 1 else [0, *range(2, number + 1)]
    seeds = [torch.randint(case.nodes, (size,), generator=draw) for size in sizes]
    return sampler.sample(seeds, 0)


def groups() -> None:
    """Rows and ids are those of the whole graph; rounds, rows and bytes those of the formulas."""
    with Communicator.create("fetch", timeout=20) as comm:
        for case in CASES:
            for share in (True, False):
                for edges in ((), ("edge_attr", "edge_kind"), ("edge_kind",)):
                    for hybrid in (False, True):
                        _group(comm, case, share, edges, hybrid)


def _group(comm: Communicator, case: Case, share: bool, edges: tuple[str, ...], hybrid: bool) -> None:
    data, owner = whole(case), owners(case, comm.size)
    ids = internal_ids(owner)
    store = DistFeatureStore(part_of(case, comm.size, comm.rank), comm, share=share)
    layout = Layout.COO if share else Layout.CSC
    per_rank = [sampled(case, rank, 4, layout) for rank in range(comm.size)]
    given = per_rank[comm.rank]
    if not hybrid:
        given = [one.with_ids([ids[one.node]]) for one in given]
    names = {NODES: ["x", "train_mask"], EDGES: edges}
    fetch = RemoteFetcher(store, names, [ids] if hybrid else None)
    before = comm.counters.snapshot()
    fetched = fetch.fetch(FetchGroup(given, epoch=1, macrobatch=2))
    counts = (comm.counters.snapshot() - before)[MessageKind.FEATURES]
    for ready, sample in zip(fetched.minibatches, per_rank[comm.rank], strict=True):
        assert torch.equal(ready.node, sample.node) and ready.key == sample.key
        assert set(ready.block) == {"x", "train_mask"} and set(ready.edge_block) == set(edges)
        assert ready.block["x"].is_contiguous()
        assert torch.equal(ready.attribute("x"), data.x[sample.node])
        assert torch.equal(ready.attribute("train_mask"), data.train_mask[sample.node])
        for name in edges:
            assert torch.equal(ready.edge_block[name], data[name][sample.edge])
    first = fetched.minibatches[0].block["x"]
    assert all(one.block["x"] is first for one in fetched.minibatches)
    # what crosses the wire, from everyone's minibatches
    hosts = comm.hosts if share else list(range(comm.size))  # those who read each other's memory
    asked = torch.zeros(comm.size, comm.size, 2, dtype=torch.int64)  # nodes and edges, of whom by whom
    for rank, minibatches in enumerate(per_rank):
        nodes = torch.cat([one.node for one in minibatches]).unique()
        edge = torch.cat([_edges(one) for one in minibatches]).unique()
        for other in range(comm.size):
            if hosts[other] != hosts[rank]:
                asked[rank, other, 0] = int((owner[nodes] == other).sum())
                asked[rank, other, 1] = int((owner[data.edge_index[1, edge]] == other).sum()) * bool(edges)
    me = comm.rank
    assert fetched.rows == int(asked[me, :, 0].sum())
    row_bytes = 5 * 4 + 1 + 4 if not hybrid else 5 * 4 + 1
    row_bytes += -row_bytes % 4
    edge_bytes = {(): 0, ("edge_kind",): 2, ("edge_attr", "edge_kind"): 16}[edges]
    per_item = torch.tensor([row_bytes, edge_bytes])
    requests = asked @ torch.tensor([4, 8])
    answers = asked @ per_item
    others = [rank for rank in range(comm.size) if rank != me]
    assert counts.rounds == 2 and counts.count_rounds == 2
    assert counts.rows_sent == int(asked[me, others].sum() + asked[others, me].sum())
    assert counts.rows_received == counts.rows_sent
    assert counts.bytes_sent == int(requests[me, others].sum() + answers[others, me].sum())
    assert counts.bytes_received == int(requests[others, me].sum() + answers[me, others].sum())


def _edges(minibatch: SampledMinibatch) -> Tensor:
    assert minibatch.edge is not None
    return minibatch.edge


def steady() -> list[int]:
    """The calls to the system for memory after each of sixteen equal fetches."""
    with Communicator.create("fetch", timeout=20) as comm:
        case = Case("larger", nodes=20_000, edges=200_000)
        store = DistFeatureStore(part_of(case, comm.size, comm.rank, edge_attributes=False), comm)
        ids = internal_ids(owners(case, comm.size))
        fetch = RemoteFetcher(store, {NODES: ["x", "y"]})
        calls = []
        for _ in range(16):
            draw = torch.Generator().manual_seed(comm.rank)
            seeds = [torch.randint(case.nodes, (500,), generator=draw) for _ in range(3)]
            given = [only_nodes(ids[one]) for one in seeds]
            fetch.fetch(FetchGroup(given, epoch=1, macrobatch=2))
            calls.append(ops.memory_stats().system_calls)
        return calls


def values() -> dict[str, Any]:
    """Checks rows of several dimensions, of none, of no width, and of every element type."""
    dtypes = (torch.float16, torch.bfloat16, torch.float64, torch.uint8, torch.int8, torch.int32, torch.bool)
    with Communicator.create("fetch", timeout=20) as comm:
        case = CASES[0]
        part = part_of(case, comm.size, comm.rank)
        draw = torch.Generator().manual_seed(3)
        wholes = {
            str(dtype): torch.randint(0, 2, (case.nodes, 3, 2), generator=draw).to(dtype) for dtype in dtypes
        }
        wholes |= {"scalar": torch.arange(case.nodes), "nothing": torch.empty(case.nodes, 0)}
        part.attributes[NODES].clear()
        part.attributes[NODES].update({name: table[part.node] for name, table in wholes.items()})
        store = DistFeatureStore(part, comm)
        ids = internal_ids(owners(case, comm.size))
        fetch = RemoteFetcher(store, {NODES: list(wholes)})
        (ready,) = fetch.fetch(FetchGroup([only_nodes(ids)])).minibatches
        for name, table in wholes.items():
            assert torch.equal(ready.attribute(name), table), name
        assert torch.equal(ready.node, torch.arange(case.nodes))
        return {}
