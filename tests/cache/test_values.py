"""Cached aggregates are PyG's over all neighbours; loaders with them leave out the last hop."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn import (
    CscGraph,
    MacrobatchLinkNeighborLoader,
    MacrobatchNeighborLoader,
    Minibatch,
    PygNeighborSampler,
)
from pyg_batchgnn.cache import AggregationCache, AllNodes
from pyg_batchgnn.comm import AgreementError, Communicator, MessageKind
from pyg_batchgnn.data import NODES, DatasetError
from pyg_batchgnn.nn import SAGE
from pyg_batchgnn.ops import number_of_bytes, parse_bytes
from pyg_batchgnn.partition import Part, load_partition, save_partition
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore
from tests.support.loader_cases import assert_same, contents, equal, make_data, make_loader
from tests.support.memory_stores import stores_of
from tests.support.partitioned_graphs import CASES, Case, owners, part_of, whole
from tests.support.rank_epochs import BATCH, one_process, stores
from tests.support.ranks import run_ranks
from tests.support.reference_aggregates import KINDS, close, with_loops
from tests.support.reference_partition import split_graph
from tests.support.tiers import ALL, WORLDS, each


def part_with_loops(case: Case, comm: Communicator, seed: int = 0) -> Part:
    data = with_loops(whole(case))
    owner = owners(dataclasses.replace(case, seed=case.seed + seed), comm.size)
    splits = {"train": data.train_mask.nonzero().view(-1)}
    # An attribute with the name that a column of the builder would have is left alone.
    tables = {"x": data.x, "y": data.y, "scale": torch.zeros(case.nodes)}
    return split_graph(
        data.edge_index, owner, comm.size, comm.rank, tables=tables, edge_tables={}, splits=splits
    )


def stores_on(part: Part, comm: Communicator, share: bool = True) -> tuple[DistFeatureStore, DistGraphStore]:
    return DistFeatureStore(part, comm, share=share), DistGraphStore(part, comm)


def values(comm: Communicator) -> None:
    for number, case in enumerate(CASES if ALL else CASES[:2]):
        data = with_loops(whole(case))
        part = part_with_loops(case, comm)
        share = number % 2 == 0
        both = stores_on(part, comm, share)
        for kind in KINDS:
            alone = AggregationCache.build(data, kind)
            for budget in (None, 6000) if number < 2 else (None,):
                before = comm.counters.snapshot()
                cache = AggregationCache.build(both, kind, memory_budget=budget)
                spent = (comm.counters.snapshot() - before)[MessageKind.FEATURES]
                assert budget or spent.rounds <= 2
                assert torch.equal(cache.rows, alone.rows[part.node])
                assert close(cache.rows, kind, data, part.node)
                assert cache.fingerprint == alone.fingerprint
                assert cache.readable.keys() == both[0].readable.keys()
    if comm.size > 1:
        with pytest.raises(AgreementError, match="aggregation"):
            AggregationCache.build(both, KINDS[comm.rank > 0])


def saved(comm: Communicator, folder: str) -> None:
    cache = AggregationCache.build(stores_on(part_with_loops(CASES[0], comm), comm), "sum")
    cache.save(folder)
    with pytest.raises(DatasetError, match="exists already"):
        cache.save(folder)


def loaded(comm: Communicator, folder: str) -> None:
    part = part_with_loops(CASES[0], comm, seed=5)
    both = stores_on(part, comm)
    built = AggregationCache.build(both, "sum")
    cache = AggregationCache.load(folder, both, kind="sum", memory_budget=6000)
    assert torch.equal(cache.rows, built.rows) and cache.fingerprint == built.fingerprint
    with pytest.raises(AgreementError, match="kind"):
        AggregationCache.load(folder, both, kind="sum" if comm.rank else None)
    if comm.rank == comm.size - 1:
        both[0].own.attributes[NODES]["x"][0, 0] += 1
    comm.barrier()
    with pytest.raises(DatasetError, match="made of other data: the graph has other features"):
        AggregationCache.load(folder, both)


def files(comm: Communicator, folder: str) -> None:
    case = CASES[0]
    saved = save_partition(part_of(case, comm.size, comm.rank), folder, comm)
    part = load_partition(saved, comm)
    torch.manual_seed(0)
    model = SAGE(whole(case).x.size(1), 8, 2, 3)
    for share in (True, False):
        found = []
        for budget in (None, 1):
            features = DistFeatureStore(part, comm, share=share, memory_budget=budget)
            data = features, DistGraphStore(part, comm)
            cache = AggregationCache.build(data, "symmetric", memory_budget=5000)
            outputs = model.infer(AllNodes(data, memory_budget=5000))
            found.append((cache.rows, cache.fingerprint, outputs.logits, outputs.hidden))
            assert bool(features.disk_reads.rows) == (budget is not None)
        for one, other in zip(*found, strict=True):
            assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


@each
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_one_process(case: Case, kind: str, dtype: torch.dtype) -> None:
    data = with_loops(whole(case))
    data.x = data.x.to(dtype)
    cache = AggregationCache.build(data, kind)
    assert cache.rows.dtype == (torch.float32 if dtype == torch.float16 else dtype)
    assert close(cache.rows, kind, data)
    small = AggregationCache.build(data, kind, memory_budget=1)
    assert torch.equal(cache.rows, small.rows) and small.fingerprint == cache.fingerprint


def test_a_graph_and_its_features() -> None:
    data = whole(CASES[0])
    graph = CscGraph.from_edge_index(data.edge_index, data.num_nodes)
    one = AggregationCache.build((graph, data.x.numpy()), "mean", progress=True)
    assert torch.equal(one.rows, AggregationCache.build(data, "mean").rows)


@pytest.mark.parametrize(("ranks", "hosts"), WORLDS, ids=str)
def test_over_ranks(ranks: int, hosts: Sequence[int]) -> None:
    run_ranks(values, ranks, hosts=hosts)


@pytest.mark.parametrize("hosts", [[0, 0, 1]], ids=str)
def test_over_ranks_with_features_in_files(hosts: Sequence[int], tmp_path: Path) -> None:
    run_ranks(files, len(hosts), {"folder": str(tmp_path / "parts")}, hosts=hosts)


def test_ranks_and_partitions_may_be_others(tmp_path: Path) -> None:
    for writers, readers in ((3, 2), (1, 3)):
        folder = str(tmp_path / f"of {writers}")
        run_ranks(saved, writers, {"folder": folder})
        run_ranks(loaded, readers, {"folder": folder})
    data = with_loops(whole(CASES[0]))
    alone = AggregationCache.load(tmp_path / "of 3", data)
    assert torch.equal(alone.rows, AggregationCache.build(data, "sum").rows)


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        (lambda data: data.x[5, 2].add_(1e-6), True),
        (lambda data: data.x.__setitem__(slice(2), data.x[:2].flip(0)), True),
        (lambda data: data.edge_index[0, 3].add_(1), True),
        (lambda data: data.edge_index.__setitem__((1, 3), (data.edge_index[1, 3] + 1) % 120), True),
        (lambda data: data.edge_index.copy_(data.edge_index.flip(1)), False),
        (lambda data: data.y.zero_(), False),
    ],
)
def test_a_fingerprint_is_of_edges_and_features_and_of_nothing_else(change: object, differs: bool) -> None:
    data = whole(CASES[0])
    before = AggregationCache.build(data, "mean").fingerprint
    change(data)  # type: ignore[operator]
    assert (AggregationCache.build(data, "mean").fingerprint != before) is differs


NO_EDGES = torch.zeros(2, 0).long()


@pytest.mark.parametrize(
    ("data", "kind", "error", "text"),
    [
        (whole(CASES[0]), "max", ValueError, "the max over sampled neighbours"),
        (whole(CASES[0]), "attention", ValueError, "GAT weighs"),
        (whole(CASES[0]), "median", ValueError, "one of 'mean', 'sum', 'symmetric', got 'median'"),
        (Data(edge_index=NO_EDGES, num_nodes=2), "mean", ValueError, "no features x"),
        (Data(x=torch.ones(2), edge_index=NO_EDGES), "mean", ValueError, "columns"),
        (Data(x=torch.ones(2, 1).int(), edge_index=NO_EDGES), "sum", TypeError, "float"),
        (
            Data(x=torch.ones(2, 1, requires_grad=True), edge_index=NO_EDGES),
            "sum",
            ValueError,
            "features that are learned",
        ),
        (Data(x=torch.ones(3, 1), num_nodes=4, edge_index=NO_EDGES), "sum", ValueError, "3 rows for 4 nodes"),
        (np.ones(3), "sum", TypeError, "got ndarray"),
    ],
)
def test_what_cannot_be_cached(data: object, kind: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        AggregationCache.build(data, kind)


DATA = Data(x=torch.randn(4, 2), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))


def test_a_text_is_a_number_of_bytes() -> None:
    assert parse_bytes("512MiB") == 512 << 20 and parse_bytes("1.5 GB") == 1_500_000_000
    assert number_of_bytes("2k") == number_of_bytes(2000) == 2000 and number_of_bytes(None) is None
    assert parse_bytes("7B") == 7 and parse_bytes("0") == 0
    with pytest.raises(ValueError, match="write it like"):
        parse_bytes("lots")


@pytest.mark.parametrize(
    ("budget", "error", "words"),
    [
        ("lots", ValueError, "write it like 2GiB"),
        (" 1000 ", ValueError, "' 1000 ' is an amount of memory without a unit; write it like"),
        ("1.5", ValueError, "'1.5' is an amount of memory without a unit; write it like"),
        ("0", ValueError, "at least 1, got 0"),
        (-5, ValueError, "at least 1, got -5"),
        (2.5, TypeError, "got 2.5"),
        (True, TypeError, "got True"),
    ],
)
def test_refused_budgets(budget: Any, error: type[Exception], words: str) -> None:
    for read in (AllNodes, functools.partial(AggregationCache.build, kind="mean")):
        with pytest.raises(error, match=words):
            read(DATA, memory_budget=budget)


def epochs(comm: Communicator) -> None:
    settings = itertools.cycle(
        [
            {"schedule": "global", "prefetch": 1, "macrobatch_size": 3, "fetch_size": 2},
            {"schedule": "local", "shuffle": True, "replace": True, "attributes": ["x"]},
            {"schedule": "global", "shuffle": True, "macrobatch_size": 1, "fetch_size": 1},
        ]
    )
    for number, case in enumerate(CASES if ALL else CASES[:3]):
        data, kind = whole(case), KINDS[number % 3]
        both = stores(comm, case, hybrid=number % 2 == 1)
        train = data.train_mask.nonzero().view(-1)
        for options in itertools.islice(settings, 2 if ALL else 1):
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
    for fanouts, used in (([3, 2, 4], cache), ([3, 2], None)):
        loader = MacrobatchNeighborLoader(both, fanouts, aggregation_cache=used, **common)
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


@each
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
        (data, {"export": "pyg"}, "is for export='native'"),
        (data, {"export": "native", "fanouts": (4,)}, r"last hop of several, but the fanouts are \[4\]"),
        (make_data(200), {"export": "native"}, "cache is of 300 nodes .* but data has 200"),
        (named, {"export": "native"}, "attribute 'x_mean' already"),
        (other_edges, {"export": "native"}, "another graph: data has other edges; make one of this data"),
        (other_features, {"export": "native"}, "another graph: data has other features"),
    ]
    for source, options, text in refusals:
        with pytest.raises(ValueError, match=text):
            make_loader(source, aggregation_cache=cache, **options)
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


def test_graphs_of_several_types_have_no_cache() -> None:
    data = HeteroData()
    data["a"].x, data["b"].x = torch.ones(3, 2), torch.ones(2, 2)
    data["a", "to", "b"].edge_index = torch.tensor([[0, 1], [0, 1]])
    with pytest.raises(ValueError, match="2 node types and 1 relations: train without a cache"):
        AggregationCache.build(data, "mean")
