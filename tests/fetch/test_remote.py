"""Fetch groups over ranks: the right rows, each remote one once, in two rounds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from pyg_batchgnn.fetch.cache import CachedRows
from pyg_batchgnn.sample import Replacement, taken_probability
from tests.support.ranks import run_ranks
from tests.support.tiers import WORLDS, in_all

# Remote ###########################################################################################

JOBS = "tests.fetch.job_remote"


@pytest.mark.parametrize(("ranks", "hosts"), WORLDS, ids=str)
def test_groups_hold_what_the_whole_graph_holds(ranks: int, hosts: Sequence[int]) -> None:
    run_ranks(f"{JOBS}:groups", ranks, hosts=hosts)


def test_attributes_of_any_type_and_shape() -> None:
    run_ranks(f"{JOBS}:values", 2, hosts=[0, 1])


def test_the_steady_state_takes_no_memory() -> None:
    # A rank answers the other one while it fetches itself: how much of both overlaps depends on the
    # load. Buffers that are not kept would cost a call in each of the fourteen fetches at least.
    for result in run_ranks(f"{JOBS}:steady", 2, hosts=[0, 1]):
        assert result.value[-1] - result.value[1] <= 3


# Cache ############################################################################################

CACHE_JOBS = "tests.fetch.job_cache"


@pytest.mark.parametrize(
    ("ranks", "hosts"), [*in_all((1, [0])), (2, [0, 1]), (3, [0, 0, 0]), *in_all((4, [0, 1, 2, 0]))], ids=str
)
def test_results_are_those_without_a_cache(ranks: int, hosts: Sequence[int]) -> None:
    run_ranks(f"{CACHE_JOBS}:results", ranks, hosts=hosts)


def test_rows_that_are_overwritten_are_read_anew() -> None:
    run_ranks(f"{CACHE_JOBS}:overwritten", 2, hosts=[0, 1])


def test_the_rows_are_those_that_are_needed_most() -> None:
    for result in run_ranks(f"{CACHE_JOBS}:likely", 2, hosts=[0, 1]):
        for chosen, best, chance in result.value:
            assert chosen > 0.9 * best and chosen > 1.1 * chance, result.value


def test_what_is_here_and_what_is_missing() -> None:
    for kept, wanted in (
        ([2, 5, 9], [1, 2, 3, 9]),
        ([4], [1, 2, 4, 8]),
        ([1, 2, 3], [2]),
        ([7], []),
        ([], [1]),
    ):
        cache, node = CachedRows(torch.tensor(kept).long()), torch.tensor(wanted).long()
        split = cache.split(node)
        assert split.missing.tolist() == [one for one in wanted if one not in kept]
        assert [kept[row] for row in split.row] == [one for one in wanted if one in kept]
        joined = torch.cat([split.missing, cache.node[split.row]])
        assert torch.equal(joined[split.place], node)


@pytest.mark.parametrize("replacement", list(Replacement))
@pytest.mark.parametrize("fanout", [1, 3, 10, -1])
def test_probability_of_an_edge(replacement: Replacement, fanout: int) -> None:
    degree = torch.tensor([0.0, 1, 2, 5, 100])
    found = taken_probability(degree, fanout, replacement)
    for of, probability in zip(degree.tolist()[1:], found.tolist()[1:], strict=True):
        wanted = 1 - (1 - 1 / of) ** abs(fanout) if replacement is Replacement.WITH else min(1, fanout / of)
        assert probability == pytest.approx(1.0 if fanout < 0 else wanted, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_probability_of_an_edge_of_a_share(dtype: torch.dtype) -> None:
    """0.1 of 30 is 3, as in the sampler, and never less than one."""
    degree = torch.tensor([1, 5, 30, 31], dtype=dtype)
    found = taken_probability(degree, 0.1, Replacement.WITHOUT)
    assert found.tolist() == pytest.approx([1, 1 / 5, 3 / 30, 4 / 31], rel=1e-6)


@pytest.mark.parametrize("ranks", [2, *in_all(4)])
def test_caches_hold_the_rows_that_are_worth_most(ranks: int) -> None:
    run_ranks(f"{JOBS}:caches", ranks)
