"""Sizes, threads, prefetching and workers change speed and memory, never a bit."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, given
from torch_geometric.data import Data

from pyg_batchgnn import MacrobatchNeighborLoader
from tests.support.loader_cases import NODES, assert_same, make_data, make_loader
from tests.support.tiers import examples


@st.composite
def cases(draw: st.DrawFn) -> tuple[Data, dict[str, Any]]:
    nodes = draw(st.integers(1, 40))
    ends = st.integers(0, nodes - 1)
    pairs = draw(st.lists(st.tuples(ends, ends), max_size=120))
    data = Data(
        x=torch.arange(nodes * 3.0).view(nodes, 3),
        edge_index=torch.tensor(pairs, dtype=torch.long).view(-1, 2).t().contiguous(),
    )
    if pairs and len(pairs) != nodes:
        data.edge_attr = torch.arange(len(pairs))
    arguments = {
        "num_neighbors": draw(st.lists(st.sampled_from([-1, 0, 1, 2, 5]), min_size=1, max_size=4)),
        "replace": draw(st.booleans()),
        "batch_size": draw(st.integers(1, 9)),
        "shuffle": draw(st.booleans()),
        "drop_last": draw(st.booleans()),
        "seed": draw(st.integers(0, 2**64 - 1)),
        "input_nodes": draw(
            st.none() | st.lists(ends, max_size=30).map(lambda ids: torch.tensor(ids).long())
        ),
    }
    return data, arguments


@st.composite
def settings_of(draw: st.DrawFn) -> dict[str, Any]:
    macrobatch = draw(st.integers(1, 9))
    return {
        "macrobatch_size": macrobatch,
        "fetch_size": draw(st.integers(1, macrobatch)),
        "threads": draw(st.sampled_from([1, 2, 3, None])),
        "prefetch": draw(st.integers(0, 3)),
    }


@examples(60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(cases(), settings_of(), st.integers(0, 3))
def test_settings_do_not_matter(
    case: tuple[Data, dict[str, Any]], chosen: dict[str, Any], epoch: int
) -> None:
    data, arguments = case
    plain = MacrobatchNeighborLoader(data, **arguments, macrobatch_size=1, fetch_size=1, threads=1)
    plain.set_epoch(epoch)
    other = MacrobatchNeighborLoader(data, **arguments, **chosen)
    other.set_epoch(epoch)
    expected = list(plain)
    assert_same(other, expected)
    native = MacrobatchNeighborLoader(data, **arguments, **chosen, export="native")
    native.set_epoch(epoch)
    assert_same(native, expected, ignore=["e_id", "edge_attr", "num_nodes"])


@pytest.mark.parametrize("export", ["pyg", "native"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_workers_do_not_matter(shuffle: bool, export: str) -> None:
    data = make_data()
    expected = list(make_loader(data, shuffle=shuffle, export=export))
    for kwargs in (
        {"num_workers": 1},
        {"num_workers": 2, "macrobatch_size": 4, "prefetch_factor": 1},
        {"num_workers": 2, "filter_per_worker": False, "persistent_workers": True},
    ):
        assert_same(make_loader(data, shuffle=shuffle, export=export, **kwargs), expected)


def test_a_minibatch_depends_on_its_seeds_alone() -> None:
    data = make_data()
    whole = list(make_loader(data))
    alone = make_loader(data, input_nodes=torch.arange(64, 96))
    assert_same(alone, whole[2:3], ignore=["input_id"])
    assert_same([make_loader(data)(list(range(64, 96)))], whole[2:3])


@pytest.mark.parametrize("calls", [1, 3])
def test_calls_in_between_change_nothing(calls: int) -> None:
    data = make_data()
    expected = list(make_loader(data, shuffle=True))
    for prefetch in (0, 1):
        loader = make_loader(data, shuffle=True, prefetch=prefetch)
        seen = []
        for batch in loader:
            seen.append(batch)
            for position in range(calls):
                loader([position])
        assert_same(seen, expected)


def test_two_iterators_at_a_time() -> None:
    data = make_data()
    epochs = make_loader(data, shuffle=True)
    expected = [list(epochs), list(epochs)]
    for kwargs in ({}, {"prefetch": 1}, {"num_workers": 1}):
        loader = make_loader(data, shuffle=True, **kwargs)
        both = list(zip(loader, loader, strict=True))
        assert_same([one for one, _ in both], expected[0])
        assert_same([other for _, other in both], expected[1])


def test_threads_of_torch_do_not_matter() -> None:
    data = make_data(2000, 30_000)
    data.x = torch.randn(2000, 300)
    expected = list(make_loader(data, batch_size=500))
    torch.set_num_threads(1)
    assert_same(make_loader(data, batch_size=500), expected)


def test_the_default_generator_is_left_alone() -> None:
    loaders = [
        make_loader(make_data(), shuffle=True, **kwargs)
        for kwargs in (
            {},
            {"prefetch": 1},
            {"num_workers": 1},
            {"macrobatch_size": "auto", "fetch_size": "auto"},
        )
    ]
    for loader in loaders:
        before = torch.get_rng_state()
        assert len(list(loader)) == -(-NODES // 32)
        loader([0])
        assert torch.equal(torch.get_rng_state(), before)
