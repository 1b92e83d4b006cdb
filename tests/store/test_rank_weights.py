"""Weights of edges over ranks, without and with the topology on every rank."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import EDGES, NODES
from pyg_batchgnn.store import (
    CscGraph,
    DistFeatureStore,
    own_sums,
    replicate_attribute,
    replicate_topology,
    sum_weights,
)
from tests.support.reference_partition import Tables, typed_part
from tests.support.thread_ranks import run_threads

#: A graph of as many edges as nodes.
GRAPH = CscGraph.from_edge_index(torch.tensor([[0, 1, 2, 3], [1, 1, 3, 3]]), 4).typed
RANKS = 2


def sums_of_rank(comm: Communicator, tables: Tables, hybrid: bool) -> Tensor:
    """Returns the sums of weights of the in-edges that a rank has, which are all if hybrid."""
    part = typed_part(GRAPH, [torch.tensor([0, 0, 1, 1])], RANKS, comm.rank, tables)
    store = DistFeatureStore(part, comm)
    if hybrid:
        graph = replicate_topology(part, comm).graph
        (sums,) = sum_weights("w", replicate_attribute(store, "w"), graph, [None])
    else:
        (sums,) = own_sums(store, "w", [None])
    assert sums is not None
    return sums.sums


@pytest.mark.parametrize("hybrid", [False, True])
def test_weights_of_nodes_are_none_of_edges_where_there_are_as_many(hybrid: bool) -> None:
    weight = torch.tensor([0.5, 0.25, 1.0, 2.0])
    with pytest.raises(ValueError, match=r"'w' is no attribute of edges; nodes have it \(node\)"):
        run_threads(lambda comm: sums_of_rank(comm, {NODES: {"w": weight}}, hybrid), RANKS)


@pytest.mark.parametrize("hybrid", [False, True])
def test_weights_are_those_of_edges_where_nodes_have_the_attribute_too(hybrid: bool) -> None:
    tables = {NODES: {"w": torch.zeros(4)}, EDGES: {"w": torch.tensor([0.5, 0.25, 1.0, 2.0])}}
    found = run_threads(lambda comm: sums_of_rank(comm, tables, hybrid), RANKS)
    wanted = [0.5, 0.75, 1.0, 3.0]
    assert [own.tolist() for own in found] == ([wanted] * 2 if hybrid else [wanted[:2], wanted[2:]])
