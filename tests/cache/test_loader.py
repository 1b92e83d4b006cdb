"""Loaders with a cache leave out the last hop and nothing else."""

from __future__ import annotations

import dataclasses
import itertools
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
from pyg_batchgnn.comm import AgreementError, Communicator, MessageKind
from pyg_batchgnn.data import NODES
from tests.support.loader_cases import assert_same, contents, equal, make_data, make_loader
from tests.support.memory_stores import stores_of
from tests.support.partitioned_graphs import CASES, whole
from tests.support.rank_epochs import BATCH, one_process, stores
from tests.support.ranks import run_ranks
from tests.support.reference_aggregates import KINDS
from tests.support.tiers import WORLDS

# Jobs of ranks ####################################################################################


def epochs(comm: Communicator) -> None:
    """Minibatches are bit for bit those of one process with the same cache, in all settings."""
    settings = itertools.cycle(
        [
            {"schedule": "global", "prefetch": 1, "macrobatch_size": 3, "fetch_size": 2},
            {"schedule": "local", "shuffle": True, "replace": True, "attributes": ["x"]},
            {"schedule": "global", "shuffle": True, "macrobatch_size": 1, "fetch_size": 1},
        ]
    )
    for number, case in enumerate(CASES):
        data, kind = whole(case), KINDS[number % 3]
        both = stores(comm, case, hybrid=number % 2 == 1)
        train = data.train_mask.nonzero().view(-1)
        for options in itertools.islice(settings, 2):
            common = {
                "num_neighbors": [3, 2, 4],
                "input_nodes": train,
                "batch_size": BATCH,
                "seed": 3,
                "export": "native",
                **options,
            }
            cache = AggregationCache.build(both, kind)
            kept = {"feature_cache": 1500} if number % 2 else {}
            loader = MacrobatchNeighborLoader(both, aggregation_cache=cache, **common, **kept)
            alone = one_process(case, aggregation_cache=AggregationCache.build(data, kind), **common)
            for batch in loader:
                same(batch, alone(batch.input_id.tolist()) if len(batch.input_id) else None)
            of_links(both, data, kind, {**common, **kept})


def of_links(both: Any, data: Any, kind: str, arguments: dict[str, Any]) -> None:
    """Minibatches of links are those of one process with the same cache."""
    links = {"edge_label_index": data.edge_index[:, ::9], "neg_sampling": "binary"}
    arguments = {name: value for name, value in arguments.items() if name != "input_nodes"} | links
    cache = AggregationCache.build(both, kind)
    loader = MacrobatchLinkNeighborLoader(both, aggregation_cache=cache, **arguments)
    for name in ("schedule", "feature_cache"):
        arguments.pop(name, None)
    cache = AggregationCache.build(data, kind)
    alone = MacrobatchLinkNeighborLoader(data, aggregation_cache=cache, **arguments)
    for batch in loader:
        same(batch, alone(batch.input_id.tolist()) if len(batch.input_id) else None)


def same(made: Any, wanted: Any) -> None:
    assert len(made.edges_per_hop) == 2
    if wanted is None:
        assert made.num_nodes == 0
        return
    left, right = contents(made), contents(wanted)
    names = (left.keys() | right.keys()) - {"e_id"}
    different = [name for name in names if not equal(left.get(name), right.get(name))]
    assert not different, different


def counts(comm: Communicator) -> None:
    """A cache saves the last hop's rounds, and fetches the rows of the remaining nodes alone."""
    case = CASES[0]
    both = stores(comm, case)
    cache = AggregationCache.build(both, "mean")
    train = whole(case).train_mask.nonzero().view(-1)
    common: dict[str, Any] = {"input_nodes": train, "batch_size": BATCH, "seed": 3, "export": "native"}
    common |= {"macrobatch_size": 2, "fetch_size": 1, "attributes": ["x"]}
    spent = []
    for fanouts, given in (([3, 2, 4], cache), ([3, 2], None)):
        loader = MacrobatchNeighborLoader(both, fanouts, aggregation_cache=given, **common)
        before = comm.counters.snapshot()
        for _ in loader:
            pass
        spent.append((comm.counters.snapshot() - before, loader.stats().total.rows_fetched))
    (ours, rows), (plain, plain_rows) = spent
    assert rows == plain_rows
    assert ours[MessageKind.TOPOLOGY].bytes_sent == plain[MessageKind.TOPOLOGY].bytes_sent
    assert ours[MessageKind.TOPOLOGY].rounds == plain[MessageKind.TOPOLOGY].rounds > 0
    more = ours[MessageKind.FEATURES].bytes_received - plain[MessageKind.FEATURES].bytes_received
    assert more == rows * 5 * 4  # five columns of float32 per row more than the five of x
    with pytest.raises(ValueError, match="not made of the feature store"):
        MacrobatchNeighborLoader(stores(comm, case), [3, 2, 4], aggregation_cache=cache, **common)
    other = AggregationCache.build(both, "sum")
    with pytest.raises(AgreementError, match="cache"):
        MacrobatchNeighborLoader(both, [3, 2], aggregation_cache=cache if comm.rank else other, **common)
    comm.check_agreement({"end": torch.__version__})


# Tests ############################################################################################


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
    run_ranks(epochs, ranks, hosts=hosts)


def test_rounds_and_rows_over_ranks() -> None:
    run_ranks(counts, 3, hosts=[0, 1, 2])


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
