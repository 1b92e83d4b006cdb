"""Aggregation caches by relation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn import AggregationCache, MacrobatchNeighborLoader
from pyg_batchgnn.cache import verify_aggregation_cache
from pyg_batchgnn.comm import AgreementError, Communicator
from pyg_batchgnn.data import DatasetError, Relation
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore
from tests.cache.typed_cases import CACHED, CITED, CITES, WRITES, wanted
from tests.store.job_typed import owners
from tests.support.ranks import run_ranks
from tests.support.reference_partition import split_dataset
from tests.support.thread_ranks import run_threads
from tests.support.tiers import in_all


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


@pytest.mark.parametrize("ranks", [*in_all(1), 3])
def test_over_ranks_they_are_those_of_one_process(ranks: int, tmp_path: Path) -> None:
    for number, (dataset, kinds) in enumerate(CACHED):
        AggregationCache.build(dataset.to_pyg(), kinds).save(tmp_path / f"alone {number}")
    folder = {"folder": str(tmp_path)}
    run_ranks("tests.cache.job_typed:values", ranks, folder, hosts=list(range(ranks)))
    for number, (dataset, kinds) in enumerate(CACHED):
        found = AggregationCache.load(tmp_path / f"ranks {number}", dataset.to_pyg(), kind=kinds)
        same_aggregates(found, AggregationCache.build(dataset.to_pyg(), kinds))


@pytest.mark.parametrize("ranks", [*in_all(1), 3])
def test_minibatches_over_ranks_carry_those_of_one_process(ranks: int) -> None:
    run_ranks("tests.cache.job_typed:loaders", ranks, hosts=list(range(ranks)))


def same_aggregates(found: AggregationCache, wanted: AggregationCache) -> None:
    assert list(found.relations) == list(wanted.relations)
    for one, other in zip(found.relations.values(), wanted.relations.values(), strict=True):
        assert torch.equal(one.rows, other.rows) and one.rows.dtype == other.rows.dtype
        assert (one.kind, one.fingerprint) == (other.kind, other.fingerprint)


def test_what_is_loaded_is_what_was_saved(tmp_path: Path) -> None:
    for number, (dataset, kinds) in enumerate(CACHED):
        data = dataset.to_pyg()
        built = AggregationCache.build(data, kinds)
        folder = built.save(tmp_path / str(number))
        verify_aggregation_cache(folder)
        files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.npy"))
        assert files == sorted(f"aggregates/{'__'.join(relation)}.npy" for relation in kinds)
        same_aggregates(AggregationCache.load(folder, data, kind=kinds), built)
        same_aggregates(AggregationCache.load(folder, data), built)


def test_a_saved_cache_of_something_else_is_refused(tmp_path: Path) -> None:
    data = CACHED[2][0].to_pyg().clone()
    folder = AggregationCache.build(data, CACHED[2][1]).save(tmp_path / "cache")
    of_cites = r"of the relation \('paper', 'cites', 'paper'\), but"
    for kind, said in (
        ("mean", f"aggregates by symmetric {of_cites} mean is wanted"),
        ({CITED: "mean"}, f"aggregates by symmetric {of_cites} none is wanted"),
    ):
        with pytest.raises(DatasetError, match=said):
            AggregationCache.load(folder, data, kind=kind)
    fewer = AggregationCache.build(data, {CITED: "mean"}).save(tmp_path / "fewer")
    with pytest.raises(DatasetError, match=f"no aggregates {of_cites} mean is wanted"):
        AggregationCache.load(fewer, data, kind="mean")
    with pytest.raises(DatasetError, match=r"of \('paper', 'rev_cites', 'paper'\), but the graph has"):
        AggregationCache.load(folder, CACHED[0][0].to_pyg())
    plain = Data(x=data["paper"].x, edge_index=data[CITES].edge_index)
    with pytest.raises(DatasetError, match="but the graph has the relations"):
        AggregationCache.load(folder, plain)
    with pytest.raises(DatasetError, match="of a graph of one node type and one relation, but"):
        AggregationCache.load(AggregationCache.build(plain, "mean").save(tmp_path / "plain"), data)
    data[CITES].edge_index[:, 0] = 1
    with pytest.raises(DatasetError, match=r"has other edges in the relation \('paper', 'cites'"):
        AggregationCache.load(folder, data)


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
