"""The choices of "auto" keep the measured peak under the budget, on graphs of every kind."""

from __future__ import annotations

import gc
import time
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from pyg_batchgnn import MacrobatchNeighborLoader, ops
from tests.support.loader_cases import make_data, make_loader
from tests.support.tiers import each, in_all

MIB = 1 << 20


def power_law(nodes: int, edges: int, width: int, hubs: str) -> Data:
    """Degrees fall with the rank of a node; the hubs have the first, the last or any ids."""
    generator = np.random.default_rng(1)
    ranks = (nodes * generator.random((2, edges)) ** 3).astype(np.int64)
    order = {"first": np.arange(nodes), "last": np.arange(nodes)[::-1], "any": generator.permutation(nodes)}[
        hubs
    ]
    return Data(x=torch.randn(nodes, width), edge_index=torch.from_numpy(order[ranks].copy()))


def regular(nodes: int, degree: int, width: int) -> Data:
    data = make_data(nodes, nodes * degree)
    data.x = torch.randn(nodes, width)
    del data.edge_attr
    return data


def with_edge_attributes() -> Data:
    data = regular(20_000, 8, 4)
    data.edge_attr = torch.randn(data.num_edges, 64)
    return data


GIVEN = {
    "wide rows": lambda: regular(20_000, 10, 100),
    "narrow rows": lambda: regular(50_000, 12, 4),
    "edge attributes": with_edge_attributes,
    "hubs first": lambda: power_law(30_000, 300_000, 64, "first"),
    "hubs last": lambda: power_law(30_000, 300_000, 64, "last"),
    "hubs anywhere": lambda: power_law(30_000, 300_000, 64, "any"),
}

EXPORTS: dict[str, dict[str, Any]] = {
    "pyg": {"export": "pyg"},
    "in place": {"export": "native"},
    "copied": {"export": "native", "features": "copy"},
}


def peak_of(loader: Any, prefetch: int) -> int:
    gc.collect()
    ops.empty_cache()
    before = ops.memory_stats().live
    ops.reset_peak()
    for number, _ in enumerate(loader):
        if number == 0 and prefetch:
            time.sleep(0.2)  # so that what is prepared ahead is there in whole while this macrobatch still is
    return ops.memory_stats().peak - before


@each
@pytest.mark.parametrize("prefetch", [0, 1])
@pytest.mark.parametrize("export", EXPORTS)
@pytest.mark.parametrize("name", [*list(GIVEN)[:-2], *in_all(*list(GIVEN)[-2:])])
def test_the_peak_stays_under_the_budget(name: str, export: str, prefetch: int) -> None:
    data = GIVEN[name]()
    for shuffle in (False, True):
        chosen = []
        for budget in (48 * MIB, 192 * MIB):
            loader = MacrobatchNeighborLoader(
                data, [8, 4], batch_size=256, shuffle=shuffle, seed=1, threads=2, **EXPORTS[export],
                prefetch=prefetch, memory_budget=budget, input_nodes=torch.arange(0, data.num_nodes, 4),
            )  # fmt: skip
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                peak = peak_of(loader, prefetch)
            sizes = loader.sizes
            assert peak <= budget, sizes
            chosen.append(sizes.macrobatch)
        assert chosen[0] <= chosen[1]


def test_blocks_that_would_not_fit() -> None:
    data = regular(60_000, 10, 256)
    loader = MacrobatchNeighborLoader(
        data, [8, 4], batch_size=128, seed=1, threads=1, **EXPORTS["copied"], prefetch=1,
        memory_budget=96 * MIB, input_nodes=torch.arange(6000),
    )  # fmt: skip
    assert 20 * MIB < peak_of(loader, 1) <= 96 * MIB, loader.sizes


def test_features_in_place_cost_nothing() -> None:
    """If one block would exceed a budget, the rest of the budget goes to topology."""
    narrow, wide = regular(20_000, 10, 4), regular(20_000, 10, 1024)
    sizes = {}
    for name, chosen in EXPORTS.items():
        loaders = [
            MacrobatchNeighborLoader(data, [8, 4], batch_size=256, memory_budget=40 * MIB, **chosen)
            for data in (narrow, wide)
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sizes[name] = [loader.sizes for loader in loaders]
    assert sizes["in place"][0] == sizes["in place"][1]
    assert sizes["copied"][1].fetch == 1 < sizes["in place"][1].macrobatch


def test_more_budget_never_means_smaller_sizes() -> None:
    data = regular(20_000, 10, 64)
    for chosen in EXPORTS.values():
        sizes = []
        for budget in (MIB, 8 * MIB, 32 * MIB, 128 * MIB, 1024 * MIB):
            loader = MacrobatchNeighborLoader(data, [8, 4], batch_size=256, memory_budget=budget, **chosen)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                sizes.append((loader.sizes.macrobatch, loader.sizes.fetch))
        assert [one[0] for one in sizes] == sorted(one[0] for one in sizes)
        assert sizes[0] == (1, 1) and sizes[-1][0] > sizes[0][0]


def test_a_budget_that_one_minibatch_exceeds_is_said() -> None:
    loader = MacrobatchNeighborLoader(make_data(), [4], batch_size=100, memory_budget=1000)
    with pytest.warns(UserWarning, match=r"memory_budget.*batch_size.*fanouts"):
        assert loader.sizes.macrobatch == 1


def test_every_thread_has_a_minibatch_where_nobody_set_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads work on different minibatches; a budget of the user's holds all the same."""
    data = regular(20_000, 10, 64)

    def chosen(**arguments: Any) -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return MacrobatchNeighborLoader(data, [8, 4], batch_size=256, **arguments).sizes.macrobatch

    tight = next(budget for budget in range(4 * MIB, 64 * MIB, MIB) if chosen(memory_budget=budget) > 1)
    monkeypatch.setattr("pyg_batchgnn.loader.budget.free_bytes", lambda: tight // 2)
    assert chosen(threads=1) == 1
    assert chosen(threads=2) == 2
    assert chosen(threads=2, memory_budget=tight // 2) == 1


@pytest.mark.parametrize(
    "given", [{"macrobatch_size": 5}, {"fetch_size": 4}, {"macrobatch_size": 6, "fetch_size": 2}]
)
def test_what_the_user_chose_is_kept(given: dict[str, int]) -> None:
    options = {"macrobatch_size": "auto", "fetch_size": "auto", **given}
    for chosen in EXPORTS.values():
        sizes = make_loader(make_data(), **options, **chosen).sizes
        found = {"macrobatch_size": sizes.macrobatch, "fetch_size": sizes.fetch}
        assert {**found, **given} == found
        assert sizes.fetch <= sizes.macrobatch


def test_no_more_than_an_epoch_and_work_for_every_worker() -> None:
    automatic: dict[str, Any] = {"macrobatch_size": "auto", "fetch_size": "auto", "memory_budget": 10**10}
    assert make_loader(make_data(), **automatic).sizes.macrobatch == 10
    assert make_loader(make_data(), **automatic, num_workers=2).sizes.macrobatch == 5
    assert make_loader(make_data(), **automatic, input_nodes=[]).sizes.macrobatch == 1
