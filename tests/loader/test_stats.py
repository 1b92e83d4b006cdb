"""The counters agree with what the user was handed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from pyg_batchgnn.loader.stats import LoaderCounters
from tests.support.loader_cases import make_data, make_loader

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "prefetch": {"prefetch": 2},
    "two workers": {"num_workers": 2, "prefetch_factor": 3},
    "workers that sample": {"num_workers": 2, "filter_per_worker": False},
    "persistent": {"num_workers": 2, "persistent_workers": True},
}
SECONDS = ("sample_seconds", "fetch_seconds", "export_seconds")


def counted(batches: list[Any], macrobatch: int) -> LoaderCounters:
    total = LoaderCounters(minibatches=len(batches))
    for start in range(0, len(batches), macrobatch):
        group = batches[start : start + macrobatch]
        total.unique_nodes += torch.cat([batch.n_id for batch in group]).unique().numel()
    for batch in batches:
        total.nodes += batch.num_nodes
        total.edges += batch.num_edges
        total.bytes_gathered += batch.x.nbytes + batch.y.nbytes + batch.edge_attr.nbytes
    return total


def assert_counts(seen: LoaderCounters, expected: LoaderCounters) -> None:
    for field in dataclasses.fields(LoaderCounters):
        if field.name not in SECONDS:
            assert getattr(seen, field.name) == getattr(expected, field.name), field.name


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_adds_up(kind: str) -> None:
    loader = make_loader(make_data(), macrobatch_size=3, shuffle=True, **KINDS[kind])
    batches = list(loader)
    assert_counts(loader.stats().total, counted(batches, 3))
    assert_counts(loader.stats().last, counted(batches[9:], 3))
    more = list(loader)
    assert loader.stats().total.nodes == counted(batches, 3).nodes + counted(more, 3).nodes
    assert all(getattr(loader.stats().total, name) > 0 for name in ("sample_seconds", "fetch_seconds"))


@pytest.mark.parametrize("kind", ["plain", "two workers", "workers that sample"])
def test_the_last_macrobatch_is_that_of_the_minibatch_in_hand(kind: str) -> None:
    """Whoever else has been at work meanwhile."""
    loader = make_loader(make_data(), macrobatch_size=2, **KINDS[kind])
    expected = list(make_loader(make_data(), macrobatch_size=2))
    for number, _ in enumerate(loader):
        macrobatch = expected[number // 2 * 2 : number // 2 * 2 + 2]
        last, total = loader.stats().last, loader.stats().total
        assert last.nodes == counted(macrobatch, 2).nodes
        assert last.unique_nodes == counted(macrobatch, 2).unique_nodes
        assert total.minibatches == number // 2 * 2 + 2


@pytest.mark.parametrize("kind", ["plain", "prefetch", "two workers"])
def test_native_batches_gather_each_node_once_a_fetch_group(kind: str) -> None:
    sizes = {"macrobatch_size": 4, "fetch_size": 2}
    loader = make_loader(make_data(), **sizes, export="native", features="copy", **KINDS[kind])
    batches = list(loader)
    rows = sum(
        torch.cat([batch.node for batch in batches[start : start + 2]]).unique().numel()
        for start in range(0, len(batches), 2)
    )
    edges = sum(batch.num_edges for batch in batches)
    assert loader.stats().total.bytes_gathered == rows * (4 * 4 + 8) + edges * (2 * 4)
    assert loader.stats().total.nodes == sum(batch.num_nodes for batch in batches)


def test_a_call_counts_as_a_macrobatch_of_one() -> None:
    loader = make_loader(make_data())
    batch = loader([1, 2, 3])
    assert_counts(loader.stats().last, counted([batch], 1))
    assert_counts(loader.stats().total, counted([batch], 1))


def test_choosing_sizes_is_not_counted() -> None:
    loader = make_loader(make_data(), macrobatch_size="auto", fetch_size="auto")
    assert loader.sizes.macrobatch > 1
    assert loader.stats().total == LoaderCounters()


def test_what_was_read_does_not_change() -> None:
    loader = make_loader(make_data())
    loader([1])
    before = loader.stats()
    copy = dataclasses.replace(before.total)
    loader([2, 3])
    assert before.total == copy
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.total = LoaderCounters()  # type: ignore[misc]
