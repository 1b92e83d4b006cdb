"""Aggregation caches by relation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_geometric.data import HeteroData

from pyg_batchgnn import AggregationCache, MacrobatchNeighborLoader
from pyg_batchgnn.comm import AgreementError, Communicator
from pyg_batchgnn.data import Relation
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore
from tests.cache.typed_cases import CACHED, CITED, CITES, WRITES, wanted
from tests.store.job_typed import owners
from tests.support.ranks import run_ranks
from tests.support.reference_partition import split_dataset
from tests.support.thread_ranks import run_threads


@pytest.mark.parametrize(("dataset", "kinds"), CACHED, ids=["mean", "sum", "symmetric", "one of two"])
def test_aggregates_are_those_of_pyg(dataset: Any, kinds: dict[Relation, str]) -> None:
    data = dataset.to_pyg()
    cache = AggregationCache.build(data, kinds)
    small = AggregationCache.build(data, kinds, memory_budget=1)
    assert list(cache.relations) == [one for one in dataset.schema.relations if one in kinds]
    for relation, one in cache.relations.items():
        torch.testing.assert_close(one.rows.double(), wanted(data, relation, kinds[relation]))
        assert torch.equal(one.rows, small.relations[relation].rows)
        assert one.fingerprint == small.relations[relation].fingerprint


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("job", ["values", "loaders"])
def test_over_ranks_they_are_those_of_one_process(job: str, ranks: int) -> None:
    run_ranks(f"tests.cache.job_typed:{job}", ranks, hosts=list(range(ranks)))


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        ({CITES: "symmetric"}, 'paper-rev_cites-paper: "mean" on rank 0, nothing on rank 1'),
        ({CITES: "mean", CITED: "mean"}, 'paper-cites-paper: "symmetric" on rank 0, "mean" on rank 1'),
        ({CITED: "symmetric", CITES: "mean"}, "different arguments: aggregation of paper-cites-paper"),
    ],
    ids=["fewer", "other", "swapped"],
)
def test_ranks_agree_on_the_relations(theirs: dict[Relation, str], said: str) -> None:
    dataset, kinds = CACHED[2]

    def build(comm: Communicator) -> None:
        part = split_dataset(dataset, owners(dataset, comm.size), comm.size, comm.rank)
        both = DistFeatureStore(part, comm), DistGraphStore(part, comm)
        with pytest.raises(AgreementError, match=said):
            AggregationCache.build(both, theirs if comm.rank else kinds)
        assert AggregationCache.build(both, kinds).relations.keys() == kinds.keys()  # still in step

    run_threads(build, 2)


def loader(data: HeteroData, cache: AggregationCache, **options: Any) -> MacrobatchNeighborLoader:
    arguments: dict[str, Any] = {
        "num_neighbors": {CITES: [2, 3, 3], CITED: [2, 2, 3]},
        "input_nodes": "paper",
        "batch_size": 7,
        "seed": 1,
        "export": "native",
    }
    return MacrobatchNeighborLoader(data, aggregation_cache=cache, **{**arguments, **options})


@pytest.mark.parametrize("features", ["in_place", "copy"])
def test_minibatches_are_those_before_the_last_hop(features: str) -> None:
    data = CACHED[2][0].to_pyg()
    cache = AggregationCache.build(data, {CITES: "symmetric", CITED: "mean"})
    fanouts = {CITES: [2, 3], CITED: [2, 2]}
    plain = MacrobatchNeighborLoader(data, fanouts, "paper", batch_size=7, seed=1, export="native")
    names = {CITES: "x_symmetric:paper__cites__paper", CITED: "x_mean:paper__rev_cites__paper"}
    for one, other in zip(loader(data, cache, features=features), plain, strict=True):
        assert torch.equal(one.nodes[0].node, other.nodes[0].node)
        for left, right in zip(one.edges, other.edges, strict=True):
            assert torch.equal(left.indices, right.indices)
        rows = one.attributes_of("paper")
        for relation, name in names.items():
            assert torch.equal(rows.gather(name), cache.relations[relation].rows[one.nodes[0].node])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"time_attr": "time"}, "does not go with time_attr='time'"),
        ({"weight_attr": "weight"}, "does not go with weight_attr='weight'"),
        ({"disjoint": True}, "does not go with disjoint=True"),
        ({"export": "pyg"}, "PyG's layers aggregate what was sampled"),
        ({"num_neighbors": [3]}, "last hop of several"),
    ],
)
def test_what_a_cache_does_not_go_with(options: dict[str, Any], said: str) -> None:
    data = CACHED[2][0].to_pyg()
    with pytest.raises(ValueError, match=said):
        loader(data, AggregationCache.build(data, "mean"), **options)


def test_a_relation_without_aggregates_needs_no_last_hop() -> None:
    data = CACHED[2][0].to_pyg()
    cache = AggregationCache.build(data, {CITED: "sum"})
    with pytest.raises(ValueError, match=r"fanout 3 for the relation \('paper', 'cites', 'paper'\)"):
        loader(data, cache)
    assert list(loader(data, cache, num_neighbors={CITES: [2, 0], CITED: [2, 3]}))


def test_what_cannot_be_aggregated() -> None:
    data = CACHED[0][0].to_pyg()
    with pytest.raises(ValueError, match=r"put them into data\['paper'\]\.x"):
        AggregationCache.build(data, "mean")
    with pytest.raises(ValueError, match="within one node type"):
        AggregationCache.build(data, {WRITES: "symmetric"})
    with pytest.raises(ValueError, match="the graph has the relations"):
        AggregationCache.build(data, {CITED: "mean"})
    cache = AggregationCache.build(data, {WRITES: "mean"})
    with pytest.raises(NotImplementedError, match="saved and loaded for graphs of one node type"):
        cache.save("aggregates")
    other = CACHED[2][0].to_pyg()
    with pytest.raises(ValueError, match="cache is of a graph with the relations"):
        loader(other, cache)
    papers = AggregationCache.build(other, "mean")
    assert repr(papers).startswith("AggregationCache(paper-cites-paper: mean, 50 nodes, 2 columns of")
    with pytest.raises(AttributeError, match="read cache"):
        _ = papers.rows
    other["paper"].x[0] += 1
    with pytest.raises(ValueError, match="another graph: data has other features"):
        loader(other, papers)
