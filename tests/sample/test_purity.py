"""A minibatch depends on nothing but its contract."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from torch import Tensor

from pyg_batchgnn.sample import MacrobatchSampler, Replacement, SampledMinibatch, SamplingPlan
from tests.support.sampling_cases import (
    Csc,
    assert_equals_reference,
    assert_same,
    expected_minibatches,
    fixed,
)

NUM_NODES = 2000
PLAN = SamplingPlan((7, 4, 3))


def dense_graph() -> Csc:
    generator = np.random.default_rng(8)
    indptr = np.concatenate([[0], generator.integers(0, 61, NUM_NODES).cumsum()])
    indices = generator.integers(0, NUM_NODES, indptr[-1])
    return Csc(torch.from_numpy(indptr), torch.from_numpy(indices).int(), None)


def random_lists(count: int, max_size: int, seed: int = 0) -> list[Tensor]:
    generator = np.random.default_rng(seed)
    sizes = generator.integers(0, max_size + 1, count)
    return [torch.from_numpy(generator.integers(0, NUM_NODES, size)) for size in sizes]


def one_by_one(lists: list[Tensor], epoch: int, plan: SamplingPlan = PLAN) -> list[SampledMinibatch]:
    graph = dense_graph().graph()
    return [MacrobatchSampler(graph, plan, seed=5, threads=1).sample([seeds], epoch)[0] for seeds in lists]


def assert_all_same(first: list[SampledMinibatch], second: list[SampledMinibatch]) -> None:
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        assert_same(a, b)


@pytest.mark.parametrize("replacement", list(Replacement))
@pytest.mark.parametrize("threads", [1, 2, 3, 4, 8, 16])
def test_threads(threads: int, replacement: Replacement) -> None:
    lists = random_lists(40, 60)
    plan = SamplingPlan((7, 4, 3), replacement)
    sampler = MacrobatchSampler(dense_graph().graph(), plan, seed=5, threads=threads)
    assert_all_same(sampler.sample(lists, 3), one_by_one(lists, 3, plan))


def test_one_by_one_is_the_reference() -> None:
    """What the other tests of this file compare with."""
    lists = random_lists(6, 40)
    expected = expected_minibatches(dense_graph().lists(), PLAN, 5, lists, 3)
    for batch, right in zip(one_by_one(lists, 3), expected, strict=True):
        assert_equals_reference(batch, right, PLAN)


@fixed(30)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=8), st.sampled_from([1, 2, 4]), st.randoms())
def test_any_grouping_in_any_order(sizes: list[int], threads: int, random: Random) -> None:
    lists = random_lists(sum(sizes), 20, seed=sum(sizes))
    order = list(range(len(lists)))
    random.shuffle(order)
    together = MacrobatchSampler(dense_graph().graph(), PLAN, seed=5, threads=2).sample(lists, 1)
    sampler = MacrobatchSampler(dense_graph().graph(), PLAN, seed=5, threads=threads)
    start = 0
    for size in sizes:
        chosen = order[start : start + size]
        assert_all_same(sampler.sample([lists[i] for i in chosen], 1), [together[i] for i in chosen])
        start += size


def test_scratch_over_many_batches_of_random_sizes() -> None:
    sampler = MacrobatchSampler(dense_graph().graph(), PLAN, seed=5, threads=2)
    lists = random_lists(300, 150, seed=1)
    expected = one_by_one(lists, 0)
    generator = np.random.default_rng(2)
    for _ in range(60):
        chosen = generator.integers(0, len(lists), generator.integers(0, 30))
        assert_all_same(sampler.sample([lists[i] for i in chosen], 0), [expected[i] for i in chosen])


def test_seeds_are_not_changed_and_may_be_changed_afterwards() -> None:
    seeds = torch.tensor([5, 6, 5, 7])
    batch = MacrobatchSampler(dense_graph().graph(), PLAN, seed=5).sample([seeds], 0)[0]
    assert seeds.tolist() == [5, 6, 5, 7]
    seeds.zero_()
    assert_same(batch, one_by_one([torch.tensor([5, 6, 5, 7])], 0)[0])


def test_python_threads_share_a_sampler() -> None:
    """A prefetching thread and the user call the same sampler at the same time."""
    sampler = MacrobatchSampler(dense_graph().graph(), PLAN, seed=5, threads=1)
    lists = random_lists(64, 60, seed=5)
    with ThreadPoolExecutor(4) as pool:
        batches = list(pool.map(lambda seeds: sampler.sample([seeds], 0)[0], lists))
    assert_all_same(batches, one_by_one(lists, 0))
