"""The jobs of ranks in test_remote.py."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import AggregationCache, MacrobatchNeighborLoader
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import NODES
from pyg_batchgnn.store import DistFeatureStore
from tests.support.loader_cases import contents, equal
from tests.support.partitioned_graphs import CASES, Case, owners, whole
from tests.support.rank_epochs import stores

#: None is no cache; then less than a row, less than a request, and more than there is.
BUDGETS = (0, 20, 400, "1MiB")


def results() -> None:
    """Checks the bits against a loader without a cache; hits and misses add up to its rows."""
    with Communicator.create("cache", timeout=30) as comm:
        for case, (number, budget) in itertools.product(CASES, enumerate(BUDGETS)):
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
            (row_bytes,) = cached._parts.pipeline.fetcher.row_bytes
            assert after.cache_bytes == after.cache_hits * row_bytes
            cache = cached._parts.pipeline.fetcher.cache
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


def overwritten() -> None:
    """Rows that are written after the cache was filled are seen, beside aggregates too."""
    with Communicator.create("cache", timeout=30) as comm:
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


def likely() -> list[list[float]]:
    """Returns the shares of later remote rows that caches hold: as chosen, best, by chance."""
    case = Case("skewed", nodes=3000, edges=30_000, owners="contiguous")
    found = []
    with Communicator.create("cache", timeout=60) as comm:
        both = stores(comm, case, edges=False, share=False)
        for schedule, share in (("local", 0.1), ("global", 0.3)):
            arguments: dict[str, Any] = {
                "num_neighbors": [4, 3],
                "input_nodes": whole(case).train_mask,
                "batch_size": 48,
                "shuffle": True,
                "seed": 1,
                "replace": True,
                "export": "native",
                "attributes": ["x"],
                "macrobatch_size": 1,
                "fetch_size": 1,
                "schedule": schedule,
            }
            rows = int(share * case.nodes)
            loader = MacrobatchNeighborLoader(both, **arguments, feature_cache=rows * (5 * 4 + 4 + 8))
            assert loader._parts.pipeline.fetcher.cache.rows[NODES].node.numel() == rows
            times = _needed(comm, loader, both[0], case)
            stats = loader.stats().total
            wanted = stats.cache_hits + stats.cache_misses
            assert wanted == int(times.sum())
            best = int(times.sort(descending=True).values[:rows].sum())
            found.append([stats.cache_hits / wanted, best / wanted, rows / int((times >= 0).sum())])
    return found


def _needed(comm: Communicator, loader: Any, features: DistFeatureStore, case: Case) -> Tensor:
    """Counts how many minibatches of some epochs need each remote node."""
    times = torch.zeros(case.nodes, dtype=torch.int64)
    for _ in range(6):
        for batch in loader:
            times[batch.node.unique()] += 1
    times[owners(case, comm.size) == comm.rank] = 0
    return times
