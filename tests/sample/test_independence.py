"""Picks that differ in any part of the key have nothing to do with each other.

Every test counts pairs of picks (one under each of two keys) in a table of 8 x 8 or 10 x 10 cells,
which must be uniform. Pairs are disjoint: no pick is counted twice.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pyg_batchgnn.sample import MacrobatchSampler, Replacement, SamplingPlan
from pyg_batchgnn.store import CscGraph
from tests.support.biased_samplers import one_key_for_all_nodes
from tests.support.chi_square import Ints, assert_uniform, p_of_joint, rejected
from tests.support.neighbour_draws import Hubs, picks_table

SEEDS, EPOCHS, MARKS, HUBS = range(4, 12), range(8), range(16), 8
EIGHT, TEN = np.ones(8, dtype=np.int64), np.ones(10, dtype=np.int64)


def halves(table: Ints, axis: int) -> tuple[Ints, Ints]:
    """Returns entries 0, 2, 4, ... and 1, 3, 5, ... along an axis: disjoint pairs of keys."""
    return table.take(range(0, table.shape[axis], 2), axis), table.take(range(1, table.shape[axis], 2), axis)


@pytest.mark.parametrize("axis", range(5), ids=["seeds", "epochs", "minibatches", "nodes", "picks"])
@pytest.mark.parametrize("degree", [8, 5000])
def test_parts_of_the_key(axis: int, degree: int) -> None:
    """With replacement, all picks of 8 seeds x 8 epochs x 16 minibatches x 8 nodes."""
    table = picks_table(Hubs(degree, HUBS), 4, Replacement.WITH, SEEDS, EPOCHS, MARKS)
    assert_uniform(p_of_joint(*halves(table * 8 // degree, axis), EIGHT))
    assert_uniform(p_of_joint(*halves(table % 8, axis), EIGHT))


@pytest.mark.parametrize("axis", range(4))
def test_parts_of_the_key_without_replacement(axis: int) -> None:
    """One neighbour of ten."""
    table = picks_table(Hubs(10, HUBS), 1, Replacement.WITHOUT, SEEDS, EPOCHS, MARKS)
    assert_uniform(p_of_joint(*halves(table, axis), TEN))


def test_seed_and_epoch_are_not_interchangeable() -> None:
    """(seed a, epoch b) against (seed b, epoch a), for all a < b."""
    table = picks_table(Hubs(10, HUBS), 4, Replacement.WITH, range(10), range(10), MARKS)
    low, high = np.triu_indices(10, k=1)
    assert_uniform(p_of_joint(table[low, high], table[high, low], TEN))


def one_hop(plan: SamplingPlan, seed_lists: list[list[int]], node: int) -> Ints:
    """Returns the picks of a node's first row in each minibatch, [lists, picks]."""
    hubs = Hubs(10, HUBS)
    sampler = MacrobatchSampler(hubs.graph(), plan, seed=21)
    batches = sampler.sample([torch.tensor(seeds) for seeds in seed_lists], epoch=3)
    rows = []
    for batch, seeds in zip(batches, seed_lists, strict=True):
        start, end = batch.indptr[seeds.index(node) :][:2].tolist()
        assert batch.edge is not None
        rows.append(batch.edge[start:end] - node * hubs.degree)
    return torch.stack(rows).numpy()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([0, 1], [1, 0]),
        ([0], [0, 0]),
        ([0], [0, 1]),
        ([0, 1, 1], [0, 0, 1]),
    ],
    ids=["order", "repetition", "prefix", "multiset"],
)
def test_seed_lists_that_are_nearly_the_same(one: list[int], other: list[int]) -> None:
    """Draws a node in two minibatches with nearly the same seeds, in 4,000 such pairs."""
    plan = SamplingPlan((2,), Replacement.WITH)
    marks = range(HUBS, HUBS + 4000)
    first = one_hop(plan, [[mark, *one] for mark in marks], 0)
    second = one_hop(plan, [[mark, *other] for mark in marks], 0)
    assert_uniform(p_of_joint(first, second, TEN))


def layered_graph(width: int, layers: int) -> CscGraph:
    """Every node of a layer has in-edges from all nodes of the next layer, in order."""
    count = width * (layers - 1)
    indptr = torch.cat([torch.arange(count + 1) * width, torch.full((width,), count * width)])
    indices = (torch.arange(count) // width * width)[:, None] + width + torch.arange(width)
    return CscGraph.from_csc(indptr, indices.reshape(-1))


@pytest.mark.parametrize("replacement", list(Replacement))
def test_hops(replacement: Replacement) -> None:
    """A walk of 5 hops: the pick at one hop against the picks at every later one."""
    sampler = MacrobatchSampler(layered_graph(8, 6), SamplingPlan((1,) * 5, replacement), seed=2)
    seed_lists = [torch.tensor([node]) for node in range(8)]
    edges = [batch.edge for epoch in range(1000) for batch in sampler.sample(seed_lists, epoch)]
    picks = torch.stack([edge for edge in edges if edge is not None]).numpy() % 8
    assert picks.shape == (8000, 5)
    for hop in range(5):
        for later in range(hop + 1, 5):
            assert_uniform(p_of_joint(picks[:, hop], picks[:, later], EIGHT))


def test_one_key_for_all_nodes_is_rejected() -> None:
    """Returns the table of a minibatch's nodes for a sampler whose key leaves the node out."""
    table = one_key_for_all_nodes(10, draws=2000, nodes=HUBS)
    assert rejected(p_of_joint(*halves(table, 1), TEN))
