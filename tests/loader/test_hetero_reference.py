"""The loader's typed batches are those of the sampler in plain Python, read from the same data."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_geometric.data import HeteroData

from pyg_batchgnn.data import Schema
from pyg_batchgnn.sample import SamplingPlan, TemporalStrategy
from tests.support.hetero_cases import BOTH, CITES, RELATIONS, make_loader, make_timed
from tests.support.typed_reference import Edge, ReferenceGraph, ReferenceSampler, ReferenceSeed

FANOUTS = (3, 0.5)
LAST = {"temporal_strategy": "last"}


def in_edges(data: HeteroData, time_attr: str | None, weight_attr: str | None) -> Any:
    """The in-edges of every node, with the time of the edge or of its source."""
    found: dict[Any, dict[int, list[Edge]]] = {}
    for relation in data.edge_types:
        lists: dict[int, list[Edge]] = {node: [] for node in range(data[relation[2]].num_nodes)}
        edges, source = data[relation], data[relation[0]]
        for number, (one, other) in enumerate(edges.edge_index.t().tolist()):
            time = weight = None
            if time_attr is not None and time_attr in edges:
                time = int(edges[time_attr][number])
            elif time_attr is not None and time_attr in source:
                time = int(source[time_attr][one])
            if weight_attr is not None and weight_attr in edges:
                weight = float(edges[weight_attr][number])
            lists[other].append(Edge(one, number, time, weight))
        found[relation] = lists
    return found


@pytest.mark.parametrize(
    ("plan", "kwargs"),
    [
        (SamplingPlan(FANOUTS), {}),
        (SamplingPlan(FANOUTS, disjoint=True), {"disjoint": True, "weight_attr": "weight"}),
        (SamplingPlan(FANOUTS, time_window=4), {"time_attr": "time", "time_window": 4}),
        (SamplingPlan(FANOUTS, temporal=TemporalStrategy.LAST), {"time_attr": "stamp", **LAST}),
        (SamplingPlan(FANOUTS), {"time_attr": "stamp", "weight_attr": "weight"}),
    ],
)
def test_the_same_as_the_reference(plan: SamplingPlan, kwargs: dict[str, Any]) -> None:
    data = make_timed()
    times = {"author": torch.arange(14) % 8 + 2, "paper": torch.arange(30) % 8 + 2}
    timed = "time_attr" in kwargs
    counts = {name: data[name].num_nodes for name in data.node_types}
    graph = ReferenceGraph(
        Schema(tuple(data.node_types), tuple(data.edge_types)),
        counts,
        in_edges(data, kwargs.get("time_attr"), kwargs.get("weight_attr")),
    )
    reference = ReferenceSampler(graph, plan, 7, 0, plan.disjoint or timed)
    loader = make_loader(
        data, FANOUTS, input_nodes=BOTH, batch_size=12, input_time=times if timed else None, **kwargs
    )
    for batch in loader:
        seeds: list[ReferenceSeed] = []
        for name in BOTH:
            store = batch[name]
            seed_times = store.seed_time.tolist() if timed else [None] * store.batch_size
            for node, time in zip(store.n_id[: store.batch_size].tolist(), seed_times, strict=True):
                seeds.append(ReferenceSeed(name, node, len(seeds), time))
        right = reference.sample(seeds)
        for name in data.node_types:
            assert batch[name].n_id.tolist() == [node for _, node in right.node[name]]
            assert batch[name].num_sampled_nodes == right.nodes_per_hop[name]
        for relation in RELATIONS:
            assert batch[relation].e_id.tolist() == right.edge[relation]
            assert batch[relation].edge_index[0].tolist() == right.source[relation]
            assert batch[relation].num_sampled_edges == right.edges_per_hop[relation]
        assert torch.equal(batch[CITES].edge_attr, data[CITES].edge_attr[batch[CITES].e_id])
