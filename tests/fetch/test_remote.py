"""Fetch groups over ranks: the right rows, each remote one once, in two rounds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from pyg_batchgnn import AggregationCache, MacrobatchNeighborLoader
from pyg_batchgnn.comm import Communicator, KindCounts, MessageKind
from pyg_batchgnn.data import HOMOGENEOUS, NODES, Dataset, Group
from pyg_batchgnn.fetch import CacheRequest, FetchGroup, RemoteFetcher, SeedShare
from pyg_batchgnn.fetch.cache import bytes_in_cache, inclusion
from pyg_batchgnn.sample import (
    Layout,
    MacrobatchSampler,
    Minibatch,
    Replacement,
    SampledMinibatch,
    SamplingPlan,
    Seeds,
    taken_probability,
)
from pyg_batchgnn.store import DistFeatureStore
from tests.store.job_typed import owners as typed_owners
from tests.support.loader_cases import contents, equal
from tests.support.partitioned_graphs import CASES, whole
from tests.support.rank_epochs import stores
from tests.support.ranks import run_ranks
from tests.support.reference_partition import graph_of, internal_ids_by_type, split_dataset
from tests.support.tiers import ALL, WORLDS, in_all
from tests.support.typed_datasets import CASES as TYPED
from tests.support.typed_datasets import typed_dataset

#: Graphs of one type: an ordinary one, one of a single node, one without edges.
PLAIN = [(7, HOMOGENEOUS, (60,), (300,)), (8, HOMOGENEOUS, (1,), (3,)), (9, HOMOGENEOUS, (30,), (0,))]
PLAN = SamplingPlan((3, 2), Replacement.WITH)
SCHEMA = typed_dataset(*TYPED[0]).schema
OWN_FANOUTS = SamplingPlan((3, -1), by_relation=((SCHEMA.relations[1], (2, 0)),))


def sampled(dataset: Dataset, rank: int, layout: Layout) -> list[SampledMinibatch]:
    """Returns a rank's minibatches in original ids; one is empty, and one rank has only such."""
    sampler = MacrobatchSampler(graph_of(dataset), PLAN, 5, 1, layout)
    draw = torch.Generator().manual_seed(rank)
    seeds = []
    for size in (0, 2, 5):
        nodes = {
            one.name: torch.randint(
                max(one.num_nodes, 1), (size if one.num_nodes and rank != 1 else 0,), generator=draw
            )
            for at, one in enumerate(dataset.node_sets)
            if (at + size) % 2 == 0
        }
        seeds.append(Seeds.of(dataset.schema, nodes))
    return sampler.sample(seeds, 0)


def groups(comm: Communicator) -> None:
    every = list(itertools.product([*TYPED, *PLAIN], *[(True, False)] * 3))
    for case, share, hybrid, edges in every if ALL else every[::3]:
        _group(comm, typed_dataset(*case), share, hybrid, edges)


def _group(comm: Communicator, dataset: Dataset, share: bool, hybrid: bool, edges: bool) -> None:
    owner = typed_owners(dataset, comm.size)
    ids = internal_ids_by_type(owner, split_dataset(dataset, owner, comm.size, comm.rank).book)
    store = DistFeatureStore(split_dataset(dataset, owner, comm.size, comm.rank), comm, share=share)
    per_rank = [sampled(dataset, rank, list(Layout)[share]) for rank in range(comm.size)]
    given = _given(per_rank[comm.rank], None if hybrid else ids)
    names = {one.group: list(one.tables) for one in dataset.sets if one.group.is_node or edges}
    fetch = RemoteFetcher(store, names, ids if hybrid else None)
    before = comm.counters.snapshot()
    fetched = fetch.fetch(FetchGroup(given, epoch=1, macrobatch=2))
    counts = (comm.counters.snapshot() - before)[MessageKind.FEATURES]
    _check_contents(dataset, fetched.minibatches, per_rank[comm.rank], edges)
    for one in dataset.node_sets:
        shared = [{id(ready.attributes_of(one.name).tables[name]) for ready in fetched.minibatches}
                  for name in one.tables]  # fmt: skip
        assert all(len(tables) == 1 for tables in shared)
    hosts = comm.hosts if share else list(range(comm.size))
    asked, bytes_of = {}, dict(zip(dataset.schema.node_groups, fetch.row_bytes, strict=True))
    for number, one in enumerate(dataset.node_sets):
        width = sum(table[0:1].nbytes if len(table) else 0 for table in one.tables.values())
        if one.num_nodes:
            assert 0 <= bytes_of[one.group] - width - (0 if hybrid else 4) < 8
        nodes = [[batch.nodes[number].node for batch in batches] for batches in per_rank]
        if not hybrid or one.tables:
            asked[one.group] = _asked(nodes, owner[number], hosts)
    if edges:
        for number, edge_set in enumerate(dataset.edge_sets):
            if edge_set.tables:
                found = [[_edges(batch, number) for batch in batches] for batches in per_rank]
                targets = owner[dataset.schema.target_types[number]][edge_set.edge_index[1].long()]
                asked[edge_set.group] = _asked(found, targets, hosts)
                rows = [one.new_empty(1, *one.shape[1:]) for one in edge_set.tables.values()]
                widest = max(one.itemsize for one in rows)  # zeros fill a row up to a multiple of it
                bytes_of[edge_set.group] = -(-sum(one.nbytes for one in rows) // widest) * widest
    assert fetched.rows == sum(int(rows[comm.rank].sum()) for one, rows in asked.items() if one.is_node)
    kinds = [one.kind for one in fetch._reader._groups]
    _check_counts(comm, counts, asked, bytes_of, len(kinds) if len(set(kinds)) < len(kinds) else 0)


def _check_counts(
    comm: Communicator, counts: KindCounts, asked: dict[Group, Tensor], bytes_of: dict[Group, int], says: int
) -> None:
    """Checks what crossed the wire. ``says``: numbers of rows before each message that asks."""
    none = torch.zeros(comm.size, comm.size, dtype=torch.int64)
    rows = sum(asked.values(), none)
    requests = sum(((4 if one.is_node else 8) * count for one, count in asked.items()), none)
    requests = requests + 4 * says * (rows > 0)
    answers = sum((bytes_of[one] * count for one, count in asked.items()), none)
    me, others = comm.rank, [rank for rank in range(comm.size) if rank != comm.rank]
    assert counts.rounds == 2 and counts.count_rounds == 2
    assert counts.rows_sent == counts.rows_received == int(rows[me, others].sum() + rows[others, me].sum())
    assert counts.bytes_sent == int(requests[me, others].sum() + answers[others, me].sum())
    assert counts.bytes_received == int(requests[others, me].sum() + answers[me, others].sum())


def _given(minibatches: list[SampledMinibatch], ids: list[Tensor] | None) -> list[SampledMinibatch]:
    if ids is None:
        return minibatches
    return [
        one.with_ids([of_type[own.node] for of_type, own in zip(ids, one.nodes, strict=True)])
        for one in minibatches
    ]


def _asked(wanted: list[list[Tensor]], owner: Tensor, hosts: list[int]) -> Tensor:
    asked = torch.zeros(len(hosts), len(hosts), dtype=torch.int64)
    for rank, ids in enumerate(wanted):
        counts = torch.bincount(owner[torch.cat(ids).unique()], minlength=len(hosts))
        others = torch.tensor([host != hosts[rank] for host in hosts])
        asked[rank] = counts * others
    return asked


def _edges(minibatch: SampledMinibatch, number: int) -> Tensor:
    edge = minibatch.edges[number].edge
    assert edge is not None
    return edge


def _check_contents(
    dataset: Dataset, fetched: list[Minibatch], wanted: list[SampledMinibatch], edges: bool
) -> None:
    for ready, sample in zip(fetched, wanted, strict=True):
        assert ready.key == sample.key
        for number, one in enumerate(dataset.node_sets):
            node = sample.nodes[number].node
            assert torch.equal(ready.nodes[number].node, node)
            rows = ready.attributes_of(one.name)
            assert rows.tables.keys() == one.tables.keys()
            for name, table in one.tables.items():
                assert torch.equal(rows.gather(name), table[node])
        for number, edge_set in enumerate(dataset.edge_sets if edges else ()):
            for name, table in edge_set.tables.items():
                found = ready.attributes_of(edge_set.relation).gather(name)
                assert torch.equal(found, table[_edges(sample, number)])


def caches(comm: Communicator) -> None:
    for case, own, plan in itertools.product(TYPED, (True, False), (PLAN, OWN_FANOUTS)):
        dataset = typed_dataset(*case)
        if plan is PLAN or dataset.schema == SCHEMA:
            for budget in (0, 30, 500, 1 << 20):
                _cached(comm, dataset, own, plan, budget)


def _cached(comm: Communicator, dataset: Dataset, own: bool, plan: SamplingPlan, budget: int) -> None:
    owner = typed_owners(dataset, comm.size)
    part = split_dataset(dataset, owner, comm.size, comm.rank)
    ids = internal_ids_by_type(owner, part.book)
    store = DistFeatureStore(part, comm, share=False)
    fetch = RemoteFetcher(store, {one.group: list(one.tables) for one in dataset.node_sets})
    seeds = [torch.arange(nodes.num_nodes) % 3 == 0 for nodes in dataset.node_sets]
    row = torch.cat([of_type[part.original_ids(at)] for at, of_type in enumerate(seeds)]).nonzero().view(-1)
    trainer = torch.full_like(row, comm.rank) if own else None
    request = CacheRequest(budget, plan, SeedShare(row, 0.3, trainer))
    likely = _likelihood(dataset, owner, plan, seeds, comm.rank if own else None)
    wanted = [likely[kind][part.original_ids(kind)] for kind in range(part.schema.num_types)]
    for ranks, found in inclusion(part, comm, plan, request.seeds):
        column = found[:, ranks.index(comm.rank) if own else 0]
        torch.testing.assert_close(column.double(), torch.cat(wanted), atol=1e-4, rtol=1e-3)
    given = _given(sampled(dataset, comm.rank, Layout.CSC), ids)
    plain = fetch.fetch(FetchGroup(given))
    fetch.make_cache(request)
    cached = fetch.fetch(FetchGroup(given))
    _check_contents(dataset, cached.minibatches, sampled(dataset, comm.rank, Layout.CSC), edges=False)
    assert cached.hits + cached.misses == plain.rows and cached.rows == cached.misses
    assert fetch.cache is not None and fetch.cache.nbytes <= budget
    _check_choice(dataset, fetch, [of_type != comm.rank for of_type in owner], likely, budget, ids)


def _check_choice(
    dataset: Dataset,
    fetch: RemoteFetcher,
    is_remote: list[Tensor],
    likely: list[Tensor],
    budget: int,
    ids: list[Tensor],
) -> None:
    assert fetch.cache is not None
    least, best_left, left = float("inf"), 0.0, fetch.cache.nbytes
    for number, group in enumerate(dataset.schema.node_groups):
        form = fetch._nodes_only.format(group)
        value = likely[number] * form.wire_bytes / bytes_in_cache(form)
        held = torch.zeros(len(value), dtype=torch.bool)
        if group in fetch.cache.rows:
            held = torch.isin(ids[number], fetch.cache.rows[group].node)
        assert not bool((held & ~is_remote[number]).any())
        least = min([least, *value[held].tolist()])
        others = value[is_remote[number] & ~held]
        if others.numel() and float(others.max()) > best_left:
            best_left, left = float(others.max()), fetch.cache.nbytes + bytes_in_cache(form)
    assert best_left <= least * 1.01 + 1e-4
    assert best_left < 1e-4 or left > budget


def _likelihood(
    dataset: Dataset, owner: list[Tensor], plan: SamplingPlan, seeds: list[Tensor], rank: int | None
) -> list[Tensor]:
    """Returns by type the probability of being in a minibatch of a rank, edge by edge."""
    found = [
        0.3 * (of_type & ((owns == rank) | (rank is None))).double()
        for of_type, owns in zip(seeds, owner, strict=True)
    ]
    left = [1 - one for one in found]
    schema = dataset.schema
    for hop in range(plan.num_hops):
        missed = [torch.zeros_like(one) for one in found]
        for number, edges in enumerate(dataset.edge_sets):
            source, target = edges.edge_index.long()
            kind = schema.target_types[number]
            degree = torch.bincount(target, minlength=len(found[kind])).double()
            fanout, each = plan.fanouts_of(edges.relation)[hop], 1 / degree.clamp(min=1)
            taken = (each * fanout).clamp(max=1)
            if plan.replacement is Replacement.WITH:
                taken = 1 - (1 - each) ** fanout
            if fanout < 0:
                taken = torch.ones(())
            escape = torch.log1p(-(found[kind] * taken).clamp(max=1 - 1e-6))
            missed[schema.source_types[number]].index_add_(0, source, escape[target])
        found = [(1 - one.exp()) * rest for one, rest in zip(missed, left, strict=True)]
        left = [rest - one for one, rest in zip(found, left, strict=True)]
    return [1 - one for one in left]


#: None is no cache; then less than a row, less than a request, and more than there is.
BUDGETS = (0, 20, 400, "1MiB")


def results(comm: Communicator) -> None:
    every = list(itertools.product(CASES, enumerate(BUDGETS)))
    for case, (number, budget) in every if ALL else every[:: len(BUDGETS) + 1]:
        hybrid, share = number % 2 == 0, case.nodes % 2 == 0
        floats = torch.bfloat16 if case is CASES[1] else None
        both = stores(comm, case, hybrid, edges=number != 1, share=share, floats=floats)
        arguments: dict[str, Any] = {
            "num_neighbors": [3, 2],
            "input_nodes": whole(case).train_mask,
            "batch_size": 8,
            "shuffle": True,
            "seed": 1,
            "replace": number % 2 == 1,
            "export": ("native", "pyg")[number // 2],
            "macrobatch_size": 3,
            "fetch_size": 2,
            "schedule": ("local", "global")[number % 2],
            "prefetch": number % 2,
        }
        plain = MacrobatchNeighborLoader(both, **arguments)
        cached = MacrobatchNeighborLoader(both, **arguments, feature_cache=budget)
        for one, other in zip(plain, cached, strict=True):
            _same(one, other)
        before, after = plain.stats().total, cached.stats().total
        assert before.cache_hits == before.cache_misses == before.cache_bytes == 0
        assert after.cache_hits + after.cache_misses == before.rows_fetched
        assert after.rows_fetched == after.cache_misses
        (row_bytes,) = cached._setup.pipeline.fetcher.row_bytes
        assert after.cache_bytes == after.cache_hits * row_bytes
        cache = cached._setup.pipeline.fetcher.cache
        if budget == "1MiB":
            assert after.cache_misses == 0
        else:
            assert cache.nbytes <= budget
        readable = comm.ranks_of_host if share else [comm.rank]
        for held in cache.rows.values():
            assert not set(both[0].book.owner(held.node).tolist()) & set(readable)


def _same(one: Any, other: Any) -> None:
    left, right = contents(one), contents(other)
    different = [name for name in left.keys() | right.keys() if not equal(left.get(name), right.get(name))]
    assert not different, different


def overwritten(comm: Communicator) -> None:
    """Rows that are written after the cache was filled are seen, beside aggregates too."""
    both = stores(comm, CASES[0], edges=False)
    nodes = whole(CASES[0]).train_mask
    usual: dict[str, Any] = {"batch_size": 8, "seed": 1, "feature_cache": "1MiB"}
    loader = MacrobatchNeighborLoader(both, [3, 2], nodes, **usual)
    aggregates = AggregationCache.build(both, "mean")
    beside = MacrobatchNeighborLoader(
        both, [3, 2], nodes, aggregation_cache=aggregates, export="native", **usual
    )
    list(loader)
    list(beside)
    mine = torch.arange(comm.rank, CASES[0].nodes, comm.size)
    both[0].put_tensor(mine[:, None] + torch.arange(5.0), None, "x", index=mine)
    for batch in loader:
        assert torch.equal(batch.x, batch.n_id[:, None] + torch.arange(5.0))
    assert loader.stats().total.cache_misses == 0
    for minibatch in beside:
        rows = minibatch.attributes[NODES].gather("x")
        assert torch.equal(rows, minibatch.node[:, None] + torch.arange(5.0))


@pytest.mark.parametrize(("ranks", "hosts"), WORLDS, ids=str)
def test_groups_hold_what_the_whole_graph_holds(ranks: int, hosts: Sequence[int]) -> None:
    run_ranks(groups, ranks, hosts=hosts)


@pytest.mark.parametrize(
    ("ranks", "hosts"),
    [*in_all((1, [0]), (2, [0, 1]), (3, [0, 0, 0])), (3, [0, 1, 1]), *in_all((4, [0, 1, 2, 0]))],
    ids=str,
)
def test_results_are_those_without_a_cache(ranks: int, hosts: Sequence[int]) -> None:
    run_ranks(results, ranks, hosts=hosts)


def test_rows_that_are_overwritten_are_read_anew() -> None:
    run_ranks(overwritten, 2, hosts=[0, 1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_probability_of_an_edge_of_a_share(dtype: torch.dtype) -> None:
    degree = torch.tensor([1, 5, 30, 31], dtype=dtype)
    found = taken_probability(degree, 0.1, Replacement.WITHOUT)
    assert found.tolist() == pytest.approx([1, 1 / 5, 3 / 30, 4 / 31], rel=1e-6)


@pytest.mark.parametrize("ranks", [2, *in_all(4)])
def test_caches_hold_the_rows_that_are_worth_most(ranks: int) -> None:
    run_ranks(caches, ranks)
