"""Times, weights and subgraphs of typed graphs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData

from pyg_batchgnn import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader
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


@pytest.mark.parametrize("strategy", ["uniform", "last"])
@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize(("attr", "has_input_time"), [("time", False), ("time", True), ("stamp", True)])
def test_no_neighbour_is_younger_than_its_seed(
    strategy: str, window: int | None, attr: str, has_input_time: bool
) -> None:
    data, nodes = make_timed(), torch.arange(30)
    input_time = nodes % 5 + 3 if has_input_time else None
    seed_times = data["paper"].time[nodes] if input_time is None else input_time
    timed = {"input_time": input_time, "temporal_strategy": strategy, "time_window": window}
    loader = make_loader(data, input_nodes=("paper", nodes), time_attr=attr, **timed)
    relations = (CITES, WRITES) if attr == "stamp" else (CITES, REV_WRITES)
    for batch in loader:
        seed_time = seed_times[batch["paper"].input_id]
        assert ("seed_time" in batch["paper"]) == has_input_time
        assert not has_input_time or torch.equal(batch["paper"].seed_time, seed_time)
        for relation in relations:
            row, col = batch[relation].edge_index
            limit = seed_time[batch[relation[2]].batch[col]]
            time = batch[relation].stamp if attr == "stamp" else batch["paper"].time[row]
            assert (time <= limit).all() and (window is None or (time >= limit - window).all())


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


GRAPHS = Path(os.environ.get("PYG_BATCHGNN_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
NAME = "oewn_hetero"


@pytest.fixture(scope="module")
def wordnet() -> HeteroData:
    """Parts of speech and their relations; ``number`` tells nodes and edges of the whole apart."""
    if not (GRAPHS / f"{NAME}.npz").exists():
        pytest.skip(f"{NAME}.npz is not in {GRAPHS}; PYG_BATCHGNN_DATA can name another folder")
    names = json.loads((GRAPHS / f"{NAME}.json").read_text(encoding="utf-8"))
    arrays = np.load(GRAPHS / f"{NAME}.npz")
    kind, edge_kind = (torch.from_numpy(arrays[name]).long() for name in ("node_type", "edge_type"))
    data, within = HeteroData(), torch.empty_like(kind)
    for number, name in enumerate(names["node_type_names"]):
        members = (kind == number).nonzero().view(-1)
        within[members] = torch.arange(members.numel())
        data[name].num_nodes, data[name].number = members.numel(), members
        data[name].y = torch.from_numpy(arrays["y"])[members]
    source, target = torch.from_numpy(arrays["edge_index"]).long()
    relation = (kind[source] * 256 + edge_kind) * 256 + kind[target]
    types, edges = names["node_type_names"], names["edge_type_names"]
    order = relation.argsort(stable=True)
    codes, counts = relation[order].unique_consecutive(return_counts=True)
    for code, members in zip(codes.tolist(), order.split(counts.tolist()), strict=True):
        store = data[types[code >> 16], edges[code >> 8 & 255], types[code & 255]]
        store.edge_index = torch.stack([within[source[members]], within[target[members]]])
        store.number = members
    return data


def check(data: HeteroData, batch: HeteroData) -> int:
    """Nodes, edges and attributes are those of the graph. Returns the number of edges."""
    for name in data.node_types:
        assert torch.equal(batch[name].number, data[name].number[batch[name].n_id])
    for relation in data.edge_types:
        source, target = batch[relation].edge_index
        found = torch.stack([batch[relation[0]].n_id[source], batch[relation[2]].n_id[target]])
        assert torch.equal(found, data[relation].edge_index[:, batch[relation].e_id])
        assert torch.equal(batch[relation].number, data[relation].number[batch[relation].e_id])
    return batch.num_edges


def test_fanouts_of_all_relations_are_kept(wordnet: HeteroData) -> None:
    assert len(wordnet.node_types) == 4 and len(wordnet.edge_types) > 60
    loader = MacrobatchNeighborLoader(wordnet, [2, 1], "noun", batch_size=512, shuffle=True, seed=3)
    batch = next(iter(loader))
    assert check(wordnet, batch) > 512
    for relation in wordnet.edge_types:
        last = batch[relation[2]].num_sampled_nodes[0]
        targets = batch[relation].edge_index[1]
        assert torch.bincount(targets[targets < last], minlength=1).max() <= 2
        assert torch.bincount(targets[targets >= last], minlength=1).max() <= 1


def test_links_whose_reverse_is_the_same_relation(wordnet: HeteroData) -> None:
    relation = ("noun", "hypernym", "noun")
    links = wordnet[relation].edge_index[:, ::500]
    rules: dict[str, Any] = {"exclude_existing": True, "exclude_seed_edges": {relation: relation}}
    loader = MacrobatchLinkNeighborLoader(
        wordnet, [4, 2], (relation, links), batch_size=64, neg_sampling=("triplet", 2), **rules
    )
    pairs = set(map(tuple, wordnet[relation].edge_index.t().tolist()))
    for batch in loader:
        assert check(wordnet, batch) > 0
        nodes, own = batch["noun"].n_id, links[:, batch[relation].input_id]
        found = nodes[batch[relation].edge_index]
        taken = set(map(tuple, torch.cat([own, own.flip(0)], dim=1).t().tolist()))
        assert not taken & set(map(tuple, found.t().tolist()))
        sources = nodes[batch["noun"].src_index].repeat_interleave(2)
        negatives = torch.stack([sources, nodes[batch["noun"].dst_neg_index.reshape(-1)]])
        assert not pairs & set(map(tuple, negatives.t().tolist()))
