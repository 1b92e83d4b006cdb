"""The compiled sampler equals the reference bit for bit."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from pyg_batchgnn.sample import MacrobatchSampler, Replacement, SamplingPlan, minibatch_key
from pyg_batchgnn.store import CscGraph
from tests.support.graph_strategies import (
    Coo,
    Csc,
    big_fanouts,
    coo_graphs,
    csc_graphs,
    epochs,
    fanouts,
    fixed,
    plans,
    random_seeds,
    seed_lists,
    star,
    stars,
    thread_counts,
)
from tests.support.minibatch_checks import check_graph, check_sampler
from tests.support.reference_sampler import reference_key

DTYPES = [torch.int32, torch.int64]


@fixed(200)
@given(st.data(), csc_graphs(), plans(fanouts()), random_seeds, epochs, thread_counts)
def test_any_csc(
    data: st.DataObject, csc: Csc, plan: SamplingPlan, seed: int, epoch: int, threads: int | None
) -> None:
    check_graph(csc, plan, seed, data.draw(seed_lists(csc.num_nodes)), epoch, threads)


@fixed(150)
@given(st.data(), coo_graphs(), plans(fanouts(3)), random_seeds, epochs)
def test_any_edge_index(data: st.DataObject, coo: Coo, plan: SamplingPlan, seed: int, epoch: int) -> None:
    """Edge ids are positions in the user's edge_index, ascending in each adjacency list."""
    graph = CscGraph.from_edge_index(coo.edge_index, coo.num_nodes)
    sampler = MacrobatchSampler(graph, plan, seed=seed)
    check_sampler(sampler, coo.lists(), plan, seed, data.draw(seed_lists(coo.num_nodes)), epoch)


@fixed(40)
@given(stars(), plans(big_fanouts()), random_seeds, epochs)
def test_stars(csc: Csc, plan: SamplingPlan, seed: int, epoch: int) -> None:
    """In-degrees up to 100,000 and fanouts up to 1,100."""
    check_graph(csc, plan, seed, [torch.tensor([0]), torch.tensor([1, 0, 1])], epoch)


@pytest.mark.parametrize("replacement", list(Replacement))
@pytest.mark.parametrize("fanout", [1, 2, 10, 63, 64, 65, 200, 1000])
def test_fanouts_around_the_degree(fanout: int, replacement: Replacement) -> None:
    """Degrees k - 1, k, k + 1 and k + 2: where Floyd's algorithm begins."""
    for degree in range(max(fanout - 1, 1), fanout + 3):
        check_graph(
            star(degree), SamplingPlan((fanout,), replacement), 5, [torch.tensor([0, 1, 0])], epoch=fanout
        )


@pytest.mark.parametrize("indices_dtype", DTYPES)
@pytest.mark.parametrize("ids_dtype", [None, *DTYPES])
def test_dtypes(indices_dtype: torch.dtype, ids_dtype: torch.dtype | None) -> None:
    generator = np.random.default_rng(3)
    indptr = torch.from_numpy(np.concatenate([[0], generator.integers(0, 9, 50).cumsum()]))
    num_edges = int(indptr[-1])
    indices = torch.from_numpy(generator.integers(0, 50, num_edges)).to(indices_dtype)
    ids = None if ids_dtype is None else torch.arange(num_edges, dtype=ids_dtype) // 2
    check_graph(Csc(indptr, indices, ids), SamplingPlan((4, 3)), 9, [torch.arange(0, 50, 5)], epoch=1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_shuffled_edge_index(dtype: torch.dtype) -> None:
    """A larger list of edges in random order, with parallel edges."""
    generator = np.random.default_rng(4)
    edge_index = torch.from_numpy(generator.integers(0, 500, (2, 8000))).to(dtype)
    lists = Coo(edge_index, 500).lists()
    for replacement in Replacement:
        plan = SamplingPlan((10, 5), replacement)
        sampler = MacrobatchSampler(CscGraph.from_edge_index(edge_index, 500), plan, seed=11)
        check_sampler(sampler, lists, plan, 11, [torch.arange(40), torch.arange(499, 459, -1)], epoch=6)


def test_more_rows_than_nodes() -> None:
    """Duplicate seeds have rows of their own: a minibatch can have more rows than nodes."""
    count = 4000
    indptr = torch.cat([torch.arange(count + 1), torch.full((count,), count)])
    csc = Csc(indptr, torch.arange(count, 2 * count), None)
    seeds = torch.cat([torch.arange(count), torch.zeros(count, dtype=torch.int64)])
    check_graph(csc, SamplingPlan((1, 1), Replacement.WITH), 0, [seeds], epoch=0)


def test_without_edge_ids() -> None:
    check_graph(star(50), SamplingPlan((5, 5), edge_ids=False), 1, [torch.tensor([0, 3])], epoch=0)


def test_no_seed_lists() -> None:
    assert MacrobatchSampler(star(3).graph(), SamplingPlan((2,))).sample([], epoch=0) == []


@fixed(100)
@given(st.lists(st.integers(0, 2**62), max_size=30))
def test_minibatch_key(seeds: list[int]) -> None:
    assert minibatch_key(torch.tensor(seeds, dtype=torch.int64)) == reference_key(seeds)
