"""The jobs of ranks in test_remote.py."""

from __future__ import annotations

from typing import Any

import torch

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import NODES
from pyg_batchgnn.fetch import FetchGroup, RemoteFetcher
from pyg_batchgnn.store import DistFeatureStore
from tests.support.bare_minibatches import only_nodes
from tests.support.partitioned_graphs import CASES, Case, owners, part_of
from tests.support.reference_partition import internal_ids


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
