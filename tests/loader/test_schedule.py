"""The order in which seeds are visited, and who decides it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, SubsetRandomSampler
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn import MacrobatchHGTLoader, MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.loader.rank_inputs import moved_seeds
from pyg_batchgnn.nn import SAGE
from tests.support.hetero_cases import as_hetero
from tests.support.loader_cases import NODES, flat, make_data, make_loader, seeds_of
from tests.support.rank_graphs import stores_of
from tests.support.thread_ranks import run_threads


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


@pytest.mark.parametrize(
    ("counts", "hosts", "moved"),
    [
        ([5], [0], [[0]]),
        ([3, 3], [0, 1], [[0, 0], [0, 0]]),
        ([4, 3], [0, 1], [[0, 0], [0, 0]]),
        ([3, 4], [0, 1], [[0, 0], [0, 0]]),  # the rank with more keeps the one that is over
        ([0, 0, 1], [0, 1, 2], [[0] * 3] * 3),
        ([9, 0, 0], [0, 1, 2], [[0, 3, 3], [0] * 3, [0] * 3]),
        # Ranks of one host give to each other first.
        ([6, 6, 0, 0], [0, 1, 0, 1], [[0, 0, 3, 0], [0, 0, 0, 3], [0] * 4, [0] * 4]),
        ([8, 2, 0, 2], [0, 0, 1, 1], [[0, 1, 3, 1], [0] * 4, [0] * 4, [0] * 4]),
    ],
)
def test_ranks_give_each_other_as_few_seeds_as_possible(
    counts: list[int], hosts: list[int], moved: list[list[int]]
) -> None:
    assert moved_seeds(counts, hosts) == moved


def plain() -> Data:
    return make_data(10, 40)


def named() -> HeteroData:
    return as_hetero(plain(), "user", "follows")


MODEL = SAGE(4, 5, 2, 3).eval()


def inferred(data: Any, nodes: Any) -> tuple[Tensor, Tensor]:
    loader = MacrobatchNeighborLoader(data, [2, 2], nodes, batch_size=4, seed=0)
    return loader.all_nodes().node, copy.deepcopy(MODEL).inference(loader)


@pytest.mark.parametrize("ranks", [1, 2])
def test_names_of_one_type_do_not_matter(ranks: int) -> None:
    def rank(comm: Communicator) -> tuple[Tensor, Tensor]:
        return inferred(stores_of(comm, named(), "random"), "user")

    _, wanted = inferred(plain(), None)
    for node, rows in run_threads(rank, ranks):
        assert torch.allclose(rows, wanted[node], atol=1e-6)


def test_models_of_one_relation_refuse_several() -> None:
    data = named()
    data["user", "likes", "user"].edge_index = plain().edge_index
    with pytest.raises(ValueError, match=r"relations .*'likes'.*to_hetero"):
        inferred(data, "user")
