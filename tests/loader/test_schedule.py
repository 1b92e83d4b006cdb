"""The order in which seeds are visited, and who decides it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, SubsetRandomSampler

from pyg_batchgnn import MacrobatchHGTLoader, MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader
from tests.support.loader_cases import NODES, flat, make_data, make_loader, seeds_of


def test_no_shuffling_without_being_asked() -> None:
    assert flat(seeds_of(make_loader(make_data()))) == list(range(NODES))


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("batch_size", [1, 7, 100, NODES, NODES + 1])
def test_length_and_drop_last(batch_size: int, drop_last: bool) -> None:
    loader = make_loader(make_data(), batch_size=batch_size, drop_last=drop_last, shuffle=True)
    expected = NODES // batch_size if drop_last else math.ceil(NODES / batch_size)
    sizes = [batch.batch_size for batch in loader]
    assert len(sizes) == len(loader) == expected
    assert all(size == batch_size for size in sizes[:-1])


def test_shuffle_is_a_new_permutation_every_epoch_and_the_same_in_every_process() -> None:
    loader = make_loader(make_data(), shuffle=True)
    first, second = flat(seeds_of(loader)), flat(seeds_of(loader))
    assert sorted(first) == sorted(second) == list(range(NODES)) and first != second
    again = make_loader(make_data(), shuffle=True)
    again.set_epoch(1)
    assert flat(seeds_of(again)) == second
    assert flat(seeds_of(make_loader(make_data(), shuffle=True, seed=8))) != first


def test_the_users_generator_decides() -> None:
    orders = [
        seeds_of(make_loader(make_data(), shuffle=True, generator=torch.Generator().manual_seed(s), seed=k))
        for s, k in [(1, 1), (1, 2), (2, 1)]
    ]
    assert orders[0] == orders[1] != orders[2]
    plain = torch.utils.data.DataLoader(
        range(NODES),
        batch_size=32,
        sampler=RandomSampler(range(NODES), generator=torch.Generator().manual_seed(1)),
    )
    assert orders[0] == [batch.tolist() for batch in plain]


@pytest.mark.parametrize(
    "sampler",
    [lambda: SequentialSampler(range(50)), lambda: [5, 3, 1], lambda: SubsetRandomSampler([1, 2, 3])],
)
def test_the_users_sampler_decides(sampler: Callable[[], Any]) -> None:
    torch.manual_seed(4)
    batches = seeds_of(make_loader(make_data(), sampler=sampler(), batch_size=2))
    torch.manual_seed(4)
    assert batches == list(BatchSampler(sampler(), 2, False))


@pytest.mark.parametrize("inner", [RandomSampler, SequentialSampler])
@pytest.mark.parametrize("drop_last", [True, False])
def test_the_users_plain_batch_sampler_decides(inner: Any, drop_last: bool) -> None:
    """It is of the same class as the one that DataLoader makes of ``batch_size``."""
    drawn = BatchSampler(inner(range(50)), 3, drop_last)
    torch.manual_seed(4)
    expected = list(drawn)
    options = {"batch_sampler": drawn, "macrobatch_size": 4, "seed": 1}
    for loader in (
        MacrobatchNeighborLoader(make_data(), [2], **options),
        MacrobatchHGTLoader(make_data(), [2], **options),
        MacrobatchLinkNeighborLoader(make_data(), [2], **options),
    ):
        torch.manual_seed(4)
        assert len(loader) == len(expected)
        assert [batch.input_id.tolist() for batch in loader] == expected
        assert loader.state_dict()["settings"]["order"] == "drawn"


class Halves:
    """A batch sampler that remembers how often it was asked."""

    def __init__(self) -> None:
        self.epoch = 0

    def __iter__(self) -> Any:
        self.epoch += 1
        for start in range(0, 20, 10):
            yield torch.arange(start, start + 10) + self.epoch

    def __len__(self) -> int:
        return 2


class Unsized:
    def __iter__(self) -> Any:
        return iter([[1, 2], [3]])


def test_a_batch_sampler_with_a_state_of_its_own() -> None:
    loader = make_loader(make_data(), batch_sampler=Halves(), batch_size=1)
    assert len(loader) == 2
    assert [seeds[0] for seeds in seeds_of(loader)] == [1, 11]
    assert [seeds[0] for seeds in seeds_of(loader)] == [2, 12]


def test_a_batch_sampler_without_length() -> None:
    loader = make_loader(make_data(), batch_sampler=Unsized(), batch_size=1, macrobatch_size="auto")
    assert seeds_of(loader) == [[1, 2], [3]]


def test_training_that_draws_does_not_change_the_order() -> None:
    """A sampler that draws while it is read must not share random numbers with training."""

    class Lazy:
        def __iter__(self) -> Any:
            return (int(torch.randint(NODES, ())) for _ in range(20))

        def __len__(self) -> int:
            return 20

    torch.manual_seed(0)
    expected = seeds_of(
        make_loader(make_data(), sampler=Lazy(), batch_size=2, macrobatch_size=1, fetch_size=1)
    )
    torch.manual_seed(0)
    seeds = []
    for batch in make_loader(make_data(), sampler=Lazy(), batch_size=2, macrobatch_size=1, fetch_size=1):
        torch.rand(5)
        seeds += seeds_of([batch])
    assert seeds == expected
