"""Seeds of typed graphs and their times: keys, order of types, refusals, lists in order of time."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pyg_batchgnn.data import Schema
from pyg_batchgnn.sample import (
    MacrobatchSampler,
    SampledMinibatch,
    SamplingPlan,
    Seeds,
    Subgraph,
    TemporalStrategy,
)
from pyg_batchgnn.store import CscGraph, TimeOrder, TypedGraph, WeightSums

CITES, WRITES = ("paper", "cites", "paper"), ("author", "writes", "paper")
SCHEMA = Schema(("author", "paper"), (WRITES, CITES))
TURNED = Schema(("paper", "author"), (CITES, WRITES))
COUNTS = {"paper": 20, "author": 10}
EDGES = {
    CITES: torch.stack([torch.arange(200) * 7 % 20, torch.arange(200) % 20]),
    WRITES: torch.stack([torch.arange(150) * 3 % 10, torch.arange(150) % 20]),
}
NODES = {"paper": torch.tensor([3, 1, 3]), "author": torch.tensor([2])}


def sampler(schema: Schema = SCHEMA, plan: SamplingPlan | None = None, **rules: Any) -> MacrobatchSampler:
    graph = TypedGraph.from_edge_indices(schema, COUNTS, EDGES)
    return MacrobatchSampler(graph, plan or SamplingPlan((3, 2)), seed=4, **rules)


def picked(batch: SampledMinibatch) -> dict[Any, list[int]]:
    return {
        relation: sorted(edges.edge.tolist())
        for relation, edges in zip(batch.schema.relations, batch.edges, strict=True)
        if edges.edge is not None
    }


def test_the_order_of_types_and_relations_decides_no_pick() -> None:
    batches = [
        sampler(schema).sample([Seeds.of(schema, nodes)], 2)[0]
        for schema in (SCHEMA, TURNED)
        for nodes in (NODES, dict(reversed(NODES.items())))
    ]
    assert len({batch.key for batch in batches}) == 1
    assert all(picked(batch) == picked(batches[0]) for batch in batches)


def test_accessors_of_one_type_or_relation_say_what_to_read() -> None:
    (batch,) = sampler().sample([Seeds.of(SCHEMA, NODES)], 0)
    assert batch.batch_size == 4 and batch.num_edges == sum(one.num_edges for one in batch.edges)
    with pytest.raises(AttributeError, match=r"nodes_of\(\.\.\.\)\.node"):
        batch.node  # noqa: B018
    with pytest.raises(AttributeError, match=r"edges_of\(\.\.\.\)\.indptr"):
        batch.indptr  # noqa: B018
    assert batch.nodes_of("paper").node[:3].tolist() == [3, 1, 3]
    assert batch.edges_of(WRITES).indptr.numel() == sum(batch.nodes_of("paper").nodes_per_hop[:-1]) + 1


def timed() -> MacrobatchSampler:
    graph = TypedGraph.from_edge_indices(SCHEMA, COUNTS, EDGES)
    order = TimeOrder.of(graph.in_edges(CITES), torch.arange(200))
    return MacrobatchSampler(graph, SamplingPlan((3,)), times=[None, order])


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({}, "no seed times"),
        ({"time": torch.tensor([1, 2])}, "2 for 4 seeds"),
        ({"time": torch.arange(4), "example": torch.tensor([0])}, "1 for 4 seeds"),
        ({"time": torch.arange(4), "example": torch.tensor([0, 1, 2, -1])}, "-1"),
    ],
)
def test_times_and_examples_must_fit_the_seeds(rules: Any, says: str) -> None:
    with pytest.raises((ValueError, IndexError), match=says):
        timed().sample([Seeds.of(SCHEMA, NODES, **rules)], 0)


def test_seeds_must_be_of_the_graph() -> None:
    with pytest.raises(TypeError, match="give Seeds"):
        sampler().sample([torch.tensor([1])], 0)
    with pytest.raises(IndexError, match="seeds of minibatch 0 holds 10"):
        sampler().sample([Seeds.of(SCHEMA, {"author": torch.tensor([10])})], 0)
    with pytest.raises(ValueError, match="1 time orders came for 2 relations"):
        sampler(times=[None])
    with pytest.raises(ValueError, match="exist in the graph"):
        sampler(plan=SamplingPlan((1,), by_relation=((("a", "b", "c"), (1,)),)))


NUM_NODES, NUM_EDGES = 200, 9000
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
    graph = CscGraph.from_edge_index(torch.randint(NUM_NODES, (2, NUM_EDGES), generator=generator), NUM_NODES)
    time = TimeOrder.of(graph.in_edges, torch.randint(40, (NUM_EDGES,), generator=generator)).time
    weight = torch.rand(NUM_EDGES, generator=generator)
    weights = [WeightSums.of(graph.in_edges, weight)] if weighted else []
    without = TimeOrder.of(graph.in_edges, time)
    assert without.position.numel() == 0
    node = torch.arange(60)
    seeds = Seeds.of(graph.typed.schema, {"node": node}, time=node % 50)
    found = []
    for order in (without, TimeOrder(torch.arange(NUM_EDGES), time)):
        sampler = MacrobatchSampler(graph, plan, times=[order], weights=weights)
        (minibatch,) = sampler.sample([seeds], 0)
        (nodes,), (edges,) = minibatch.nodes, minibatch.edges
        found.append((nodes.node.tolist(), edges.indptr.tolist(), edges.indices.tolist()))
    assert found[0] == found[1] and len(found[0][2]) > node.numel()
