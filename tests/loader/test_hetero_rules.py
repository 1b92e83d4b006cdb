"""Times, weights and subgraphs of typed graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_geometric.data import HeteroData

from pyg_batchgnn.data import Schema
from pyg_batchgnn.sample import SamplingPlan, TemporalStrategy
from tests.support.hetero_cases import (
    BOTH,
    CITES,
    RELATIONS,
    REV_WRITES,
    WRITES,
    make_hetero,
    make_loader,
    make_timed,
)
from tests.support.typed_reference import Edge, ReferenceGraph, ReferenceSampler, ReferenceSeed


def test_types_without_time_need_input_time() -> None:
    with pytest.raises(ValueError, match=r"'author' have no 'time'.*input_time"):
        make_loader(make_timed(), input_nodes="author", time_attr="time")
    with pytest.raises(ValueError, match=r"edges have 'stamp'.*input_time"):
        make_loader(make_timed(), input_nodes="paper", time_attr="stamp")


def test_times_of_several_types() -> None:
    times = {"author": torch.arange(14), "paper": torch.arange(30)}
    loader = make_loader(make_timed(), input_nodes=BOTH, input_time=times, time_attr="stamp", batch_size=10)
    batch = list(loader)[1]
    assert batch["author"].seed_time.tolist() == [10, 11, 12, 13]
    assert batch["paper"].seed_time.tolist() == [0, 1, 2, 3, 4, 5]


def pairs(batch: HeteroData, relation: tuple[str, str, str]) -> set[tuple[int, int]]:
    return set(map(tuple, batch[relation].edge_index.t().tolist()))


def test_bidirectional() -> None:
    """PyG's cases: within a type, with a `rev_` partner, with the only type back, and without."""
    plain = make_loader(make_hetero(), input_nodes="paper", seed=3)
    with pytest.warns(UserWarning, match="reverse edge type"):
        both = list(make_loader(make_hetero(), input_nodes="paper", seed=3, subgraph_type="bidirectional"))
    for one, batch in zip(plain, both, strict=True):
        sampled = pairs(one, CITES)
        assert pairs(batch, CITES) == sampled | {(col, row) for row, col in sampled}
        writes = pairs(one, WRITES) | {(col, row) for row, col in pairs(one, REV_WRITES)}
        assert pairs(batch, WRITES) == writes == {(col, row) for row, col in pairs(batch, REV_WRITES)}
        assert "e_id" not in batch[CITES] and "edge_attr" not in batch[CITES]
        assert "num_sampled_nodes" not in batch["paper"] and "num_sampled_edges" not in batch[CITES]
        likes = ("lonely", "likes", "paper")
        assert pairs(batch, likes) == pairs(one, likes) and "e_id" in batch[likes]


FANOUTS = (3, 0.5)
LAST = {"temporal_strategy": "last"}


def in_edges(data: HeteroData, time_attr: str | None, weight_attr: str | None) -> Any:
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
        (SamplingPlan(FANOUTS), {"time_attr": "time", "input_nodes": "paper", "input_time": None}),
        (SamplingPlan(FANOUTS), {"time_attr": "stamp", "weight_attr": "weight"}),
    ],
)
def test_the_same_as_the_reference(plan: SamplingPlan, kwargs: dict[str, Any]) -> None:
    data = make_timed()
    times = {"author": torch.arange(14) % 8 + 2, "paper": torch.arange(30) % 8 + 2}
    timed, own = "time_attr" in kwargs, "input_nodes" in kwargs
    counts = {name: data[name].num_nodes for name in data.node_types}
    graph = ReferenceGraph(
        Schema(tuple(data.node_types), tuple(data.edge_types)),
        counts,
        in_edges(data, kwargs.get("time_attr"), kwargs.get("weight_attr")),
    )
    reference = ReferenceSampler(graph, plan, 7, 0, plan.disjoint or timed)
    usual = {"input_nodes": BOTH, "input_time": times if timed else None}
    loader = make_loader(data, FANOUTS, batch_size=12, **{**usual, **kwargs})
    for batch in loader:
        seeds: list[ReferenceSeed] = []
        for name in ["paper"] if own else BOTH:
            store = batch[name]
            ids = store.n_id[: store.batch_size]
            assert ("seed_time" in store) == (timed and not own)
            seed_times = data[name].time[ids] if own else store.get("seed_time", ids)
            for node, time in zip(ids.tolist(), seed_times.tolist(), strict=True):
                seeds.append(ReferenceSeed(name, node, len(seeds), time if timed else None))
        right = reference.sample(seeds)
        for name in data.node_types:
            assert batch[name].n_id.tolist() == [node for _, node in right.node[name]]
            assert batch[name].num_sampled_nodes == right.nodes_per_hop[name]
        for relation in RELATIONS:
            assert batch[relation].e_id.tolist() == right.edge[relation]
            assert batch[relation].edge_index[0].tolist() == right.source[relation]
            assert batch[relation].num_sampled_edges == right.edges_per_hop[relation]
        assert torch.equal(batch[CITES].edge_attr, data[CITES].edge_attr[batch[CITES].e_id])
