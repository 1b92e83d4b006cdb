"""Sampling by times from lists that lie in the order of time already."""

from __future__ import annotations

import pytest
import torch

from pyg_batchgnn.sample import MacrobatchSampler, SamplingPlan, Seeds, Subgraph, TemporalStrategy
from pyg_batchgnn.store import CscGraph, TimeOrder, WeightSums

NODES, EDGES = 200, 9000
PLANS = [
    SamplingPlan((7, 3)),
    SamplingPlan((7, 3), temporal=TemporalStrategy.LAST),
    SamplingPlan((7, -1), time_window=9),
    SamplingPlan((5, 4), subgraph=Subgraph.INDUCED),
]


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("weighted", [False, True])
def test_minibatches_are_those_with_positions(plan: SamplingPlan, weighted: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    graph = CscGraph.from_edge_index(torch.randint(NODES, (2, EDGES), generator=generator), NODES)
    time = TimeOrder.of(graph.in_edges, torch.randint(40, (EDGES,), generator=generator)).time
    weight = torch.rand(EDGES, generator=generator)
    weights = [WeightSums.of(graph.in_edges, weight)] if weighted else []
    without = TimeOrder.of(graph.in_edges, time)
    assert without.position.numel() == 0
    node = torch.arange(60)
    seeds = Seeds.of(graph.typed.schema, {"node": node}, time=node % 50)
    found = []
    for order in (without, TimeOrder(torch.arange(EDGES), time)):
        sampler = MacrobatchSampler(graph, plan, times=[order], weights=weights)
        (minibatch,) = sampler.sample([seeds], 0)
        (nodes,), (edges,) = minibatch.nodes, minibatch.edges
        found.append((nodes.node.tolist(), edges.indptr.tolist(), edges.indices.tolist()))
    assert found[0] == found[1] and len(found[0][2]) > node.numel()
