"""Loaders with a cache leave out the last hop and nothing else."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn import (
    AggregationCache,
    CscGraph,
    MacrobatchLinkNeighborLoader,
    MacrobatchNeighborLoader,
    Minibatch,
    PygNeighborSampler,
)
from pyg_batchgnn.data import NODES
from tests.support.loader_cases import assert_same, make_data, make_loader
from tests.support.memory_stores import stores_of
from tests.support.ranks import run_ranks
from tests.support.tiers import WORLDS

JOBS = "tests.cache.job_loader"


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("kind", ["mean", "sum", "symmetric"])
@pytest.mark.parametrize(
    "options", [{}, {"features": "copy"}, {"prefetch": 1, "shuffle": True}, {"num_workers": 1}], ids=str
)
def test_minibatches_are_those_before_the_last_hop(kind: str, replace: bool, options: dict[str, Any]) -> None:
    data = make_data()
    cache = AggregationCache.build(data, kind)
    options = {"export": "native", "replace": replace, **options}
    with_cache = make_loader(data, (4, 3, 5), aggregation_cache=cache, **options)
    without = make_loader(data, (4, 3), **options)
    for _ in range(2):
        made = list(with_cache)
        for batch in made:
            assert torch.equal(batch.attribute(cache.attribute), cache.rows[batch.node])
        own = [_without(batch, cache.attribute) for batch in made]
        assert_same(own, without)
    assert with_cache.state_dict() == without.state_dict()


def _without(batch: Minibatch, name: str) -> Minibatch:
    rows = batch.attributes[NODES]
    tables = {held: table for held, table in rows.tables.items() if held != name}
    return Minibatch.of(batch, {NODES: dataclasses.replace(rows, tables=tables)})


def test_minibatches_of_links_are_those_before_the_last_hop() -> None:
    data = make_data()
    cache = AggregationCache.build(data, "mean")
    options: dict[str, Any] = {
        "edge_label_index": data.edge_index[:, ::5],
        "neg_sampling": "triplet",
        "batch_size": 7,
        "seed": 2,
        "export": "native",
    }
    made = list(MacrobatchLinkNeighborLoader(data, [4, 3, 5], aggregation_cache=cache, **options))
    for batch in made:
        assert torch.equal(batch.attribute(cache.attribute), cache.rows[batch.node])
    without = MacrobatchLinkNeighborLoader(data, [4, 3], **options)
    assert_same([_without(batch, cache.attribute) for batch in made], without)
    with pytest.raises(ValueError, match="does not go with exclude_seed_edges=True"):
        MacrobatchLinkNeighborLoader(
            data, [4, 3], aggregation_cache=cache, exclude_seed_edges=True, **options
        )


def test_features_of_stores_and_a_sampler_of_the_users() -> None:
    data = make_data()
    cache = AggregationCache.build(data, "mean")
    made = make_loader(stores_of(data, "coo"), (4, 3, 5), aggregation_cache=cache, export="native")
    graph = CscGraph.from_edge_index(data.edge_index, data.num_nodes)
    sampler = PygNeighborSampler(graph, [4, 3, 5], seed=7)
    other = make_loader(
        data, (), seed=None, neighbor_sampler=sampler, aggregation_cache=cache, export="native"
    )
    assert_same(other, made, ignore=["y"])


@pytest.mark.parametrize(("ranks", "hosts"), WORLDS, ids=str)
def test_over_ranks_they_are_those_of_one_process(ranks: int, hosts: Sequence[int]) -> None:
    run_ranks(f"{JOBS}:epochs", ranks, hosts=hosts)


def test_rounds_and_rows_over_ranks() -> None:
    run_ranks(f"{JOBS}:counts", 3, hosts=[0, 1, 2])


def test_what_a_cache_cannot_be_for_is_refused() -> None:
    data = make_data()
    cache = AggregationCache.build(data, "mean")
    named = Data(**{**data.to_dict(), "x_mean": data.x})
    other_edges = Data(x=data.x, edge_index=data.edge_index.flip(0))
    other_features = Data(x=data.x + 1, edge_index=data.edge_index)
    refusals: list[tuple[Any, dict[str, Any], str]] = [
        (data, {"export": "pyg"}, "PyG's layers aggregate what was sampled"),
        (data, {"export": "native", "fanouts": (4,)}, r"last hop of several, but the fanouts are \[4\]"),
        (make_data(200), {"export": "native"}, "cache is of 300 nodes .* but data has 200"),
        (named, {"export": "native"}, "attribute 'x_mean' already"),
        (other_edges, {"export": "native"}, "another graph: data has other edges; make one of this data"),
        (other_features, {"export": "native"}, "another graph: data has other features"),
    ]
    for given, options, text in refusals:
        with pytest.raises(ValueError, match=text):
            make_loader(given, aggregation_cache=cache, **options)
    alike = Data(x=data.x.clone(), edge_index=data.edge_index.clone())
    make_loader(alike, aggregation_cache=cache, export="native")
    alike = Data(x=data.x, edge_index=data.edge_index)
    alike.x[0] += 1
    with pytest.raises(ValueError, match="other features"):
        make_loader(alike, aggregation_cache=cache, export="native")
    alike.x[0] -= 1
    loader = make_loader(data, aggregation_cache=cache, export="native")
    with pytest.raises(AttributeError, match="make another loader"):
        loader.data = make_data()
    assert loader.data is data or np.shape(loader.data.x) == (300, 4)


def test_there_are_no_warnings() -> None:
    data = make_data()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = make_loader(data, aggregation_cache=AggregationCache.build(data, "mean"), export="native")
        assert isinstance(loader, MacrobatchNeighborLoader) and list(loader)


def test_graphs_of_several_types_have_no_cache() -> None:
    data = HeteroData()
    data["a"].x, data["b"].x = torch.ones(3, 2), torch.ones(2, 2)
    data["a", "to", "b"].edge_index = torch.tensor([[0, 1], [0, 1]])
    with pytest.raises(ValueError, match="2 node types and 1 relations: train without a cache"):
        AggregationCache.build(data, "mean")
