"""Loaders of ranks, and that of one process that they are compared with."""

from __future__ import annotations

from typing import Any

import torch
from torch_geometric.data import Data

from pyg_batchgnn import MacrobatchNeighborLoader, Minibatch
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore, replicate_topology
from tests.support.loader_cases import contents, equal
from tests.support.partitioned_graphs import Case, part_of, whole

BATCH = 8


def stores(
    comm: Communicator, case: Case, hybrid: bool = False, edges: bool = True, **features: Any
) -> tuple[DistFeatureStore, DistGraphStore]:
    part = part_of(case, comm.size, comm.rank, edges)
    topology = replicate_topology(part, comm) if hybrid else None
    return DistFeatureStore(part, comm, **features), DistGraphStore(part, comm, topology)


def one_process(case: Case, **arguments: Any) -> MacrobatchNeighborLoader:
    """The whole graph's loader, one minibatch at a time."""
    for name in ("schedule", "prefetch"):
        arguments.pop(name, None)
    arguments |= {"macrobatch_size": 1, "fetch_size": 1}
    return MacrobatchNeighborLoader(arguments.pop("data", None) or whole(case), **arguments)


def same(made: Any, wanted: Any, data: Data) -> None:
    """Asserts that two minibatches have the same bits and the attributes of the graph."""
    left, right = contents(made), contents(wanted)
    for each in (left, right):
        each.pop("num_nodes", None)
    if isinstance(made, Minibatch):
        assert made.key == wanted.key and (made.seed, made.epoch) == (wanted.seed, wanted.epoch)
        for name, table in made.edge_block.items():
            assert torch.equal(table, data[name][made.edge])
        if made.edge is None:  # no edge attribute is wanted
            right.pop("e_id")
            left.pop("e_id")
        assert made.indices.dtype == wanted.indices.dtype and made.input_id is not None
    names = left.keys() | right.keys()
    different = [name for name in names if not equal(left.get(name), right.get(name))]
    assert not different, (different, [(left.get(name), right.get(name)) for name in different])
