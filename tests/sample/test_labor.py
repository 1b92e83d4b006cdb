"""Destinations that share the words of sources: the law of their picks, and what is refused.

Equality with the reference, over ranks and from files too, is tested with the other rules.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pyg_batchgnn.data import HOMOGENEOUS
from pyg_batchgnn.sample import (
    MacrobatchSampler,
    Replacement,
    SampledMinibatch,
    SamplingPlan,
    Seeds,
    Subgraph,
)
from pyg_batchgnn.store import CscGraph, TimeOrder, WeightSums
from tests.support.chi_square import assert_uniform, p_of_cells, p_of_joint, p_of_positions
from tests.support.reference_sampler import GAMMA, WORD, fold_all, mix
from tests.support.tiers import each, every_level, some
from tests.support.typed_graphs import DrawnSeeds, TypedCase, check_typed
from tests.support.typed_reference import LABOR_TAG, ReferenceSeed

Ints = NDArray[np.int64]
RELATION = HOMOGENEOUS.relations[0]


def graph_of(lists: list[list[int]]) -> CscGraph:
    num_nodes = max(max(map(max, lists)) + 1, len(lists))
    ends = np.cumsum([0, *map(len, lists), *[0] * (num_nodes - len(lists))])
    sources = [source for one in lists for source in one]
    return CscGraph.from_csc(torch.from_numpy(ends), torch.tensor(sources, dtype=torch.int32))


def picks(lists: list[list[int]], fanout: int, seeds: range, labor: str = "hop", **weights: Any) -> Ints:
    graph = graph_of(lists)
    first = graph.indptr[: len(lists)].numpy()[:, None]
    found = []
    for seed in seeds:
        sampler = MacrobatchSampler(graph, SamplingPlan((fanout,), labor=labor), seed=seed, **weights)
        (batch,) = sampler.sample([torch.arange(len(lists))], 0)
        assert batch.edge is not None
        found.append(batch.edge.numpy().reshape(len(lists), fanout) - first)
    return np.stack(found)


@pytest.mark.parametrize(("degree", "fanout"), some([(12, 5), (200, 10), (3, 2), (2000, 100)], 2))
def test_every_neighbour_is_as_likely(degree: int, fanout: int) -> None:
    """It is picked with probability fanout / degree, whatever its place and id."""
    table = picks([list(range(5, 5 + 7 * degree, 7))], fanout, range(2000 if degree < 1000 else 400))[:, 0]
    assert_uniform(p_of_positions(table, degree, np.arange(degree) * min(degree, 40) // degree, without=True))


def test_destinations_depend_on_each_other_and_sources_do_not() -> None:
    shared, other = list(range(10, 30)), list(range(30, 50))
    table = picks([shared, shared, other], 1, range(4000))[..., 0]
    assert np.array_equal(table[:, 0], table[:, 1])
    cell = np.arange(20) % 5
    assert_uniform(p_of_joint(cell[table[:, 0]], cell[table[:, 2]], np.bincount(cell)))


def test_weights_have_the_law_of_successive_draws() -> None:
    weights = np.array([3.0, 0.0, 1.0, 0.5, 2.0, 1e-3])
    sums = WeightSums.of(graph_of([list(range(1, 7))]).in_edges, torch.from_numpy(weights))
    table = picks([list(range(1, 7))], 2, range(6000), weights=[sums])[:, 0]
    law: dict[tuple[int, ...], float] = {}
    for first, second in itertools.permutations(np.flatnonzero(weights), 2):
        chance = weights[first] / weights.sum() * weights[second] / (weights.sum() - weights[first])
        pair = tuple(sorted((int(first), int(second))))
        law[pair] = law.get(pair, 0.0) + chance
    common = [pair for pair in law if law[pair] * len(table) >= 10]
    counts = np.array([(table == pair).all(1).sum() for pair in common])
    rest = len(table) - counts.sum(), 1 - sum(law[pair] for pair in common)
    assert 1 not in table and (table[:, 0] < table[:, 1]).all()
    likely = np.array([law[pair] for pair in common])
    assert_uniform(p_of_cells(counts, likely / likely.sum()))
    assert rest[0] <= 5 + 3 * rest[1] * len(table)


def test_the_variance_of_a_sum_over_destinations() -> None:
    """It is that over all orders of the words of sources: more than of independent destinations."""
    lists = [[3, 4, 5, 6], [4, 5, 6, 7], [5, 6, 7, 8]]
    value = np.array([0, 0, 0, 1.0, -2.0, 4.0, 0.5, 3.0, -1.0])
    neighbours = value[np.array(lists)]
    draws = 6000
    found = np.take_along_axis(neighbours[None], picks(lists, 2, range(draws)), axis=2).mean(2).sum(1)
    sums = []
    for order in itertools.permutations(range(3, 9)):
        chosen = [sorted(one, key=order.index)[:2] for one in lists]
        sums.append(value[np.array(chosen)].mean(1).sum())
    exact, alone = np.var(sums), sum(one.var(ddof=1) * (1 / 2 - 1 / 4) for one in neighbours)
    fourth = np.mean((sums - np.mean(sums)) ** 4)
    deviation = np.sqrt((fourth - exact**2) / draws)
    assert abs(found.mean() - neighbours.mean(1).sum()) < 4 * np.sqrt(exact / draws)
    assert abs(found.var() - exact) < 4 * deviation
    assert exact > 1.2 * alone


def edges_of(batch: SampledMinibatch, node: int) -> list[int]:
    row = batch.node.tolist().index(node)
    assert batch.edge is not None
    return batch.edge[batch.indptr[row] : batch.indptr[row + 1]].tolist()


@pytest.mark.parametrize(("labor", "hops", "minibatches"), [("hop", 0, 0), ("layers", 1, 0), ("epoch", 1, 1)])
def test_what_words_are_shared_over(labor: str, hops: int, minibatches: int) -> None:
    """Node 1 is found at hop 1 from node 0, and is a seed itself; both lists are alike."""
    many = list(range(10, 210))
    sampler = MacrobatchSampler(graph_of([[1], many, many]), SamplingPlan((4, 4), labor=labor), seed=1)
    both, one = sampler.sample([torch.tensor([0, 2]), torch.tensor([2])], 0)
    of_seed = [place - len(many) for place in edges_of(both, 2)]  # its list lies behind that of node 1
    assert (edges_of(both, 1) == of_seed) == bool(hops)
    assert (edges_of(both, 2) == edges_of(one, 2)) == bool(minibatches)
    (again,) = sampler.sample([torch.tensor([2])], 1)
    assert edges_of(again, 2) != edges_of(one, 2)  # every epoch has others


DEGREE = 40_000
LISTS: dict[str, list[Ints]] = {
    "long": [np.random.default_rng(3).permutation(DEGREE)],
    "parallel": [np.arange(DEGREE) % 7],  # equal words at the limit
    "of every length": [np.random.default_rng(3).integers(50, 200, length) for length in range(1, 50)],
}


@every_level
@each
@pytest.mark.parametrize("fanout", [1, 5, 100, 3000])
@pytest.mark.parametrize("kind", LISTS)
def test_lists(kind: str, fanout: int) -> None:
    nodes = torch.arange(len(LISTS[kind]))
    targets = np.repeat(nodes.numpy(), [len(one) for one in LISTS[kind]])
    edges = torch.from_numpy(np.stack([np.concatenate(LISTS[kind]), targets]))
    case = TypedCase(HOMOGENEOUS, {"node": DEGREE}, {RELATION: edges}, {}, {})
    given = [ReferenceSeed("node", node) for node in nodes.tolist()]
    seeds = [DrawnSeeds(Seeds.of(HOMOGENEOUS, {"node": nodes}), given, set())]
    check_typed(case, SamplingPlan((fanout,), labor="layers"), 1, 2, seeds)


@every_level
def test_sources_whose_words_begin_alike() -> None:
    """The first 31 bits of the words of some pairs are equal, so that the others decide."""
    key = fold_all([1, 0, LABOR_TAG])
    words = np.array([mix((key + (node + 1) * GAMMA) % WORD) for node in range(150_000)], dtype=np.uint64)
    order = np.argsort(words)
    alike = np.flatnonzero(words[order][1:] >> np.uint64(33) == words[order][:-1] >> np.uint64(33))
    assert len(alike) > 1
    lists = [order[at : at + 2][::step].tolist() for at in alike for step in (1, -1)]
    expected = [[one.index(min(one, key=lambda node: words[node]))] for one in lists]
    assert picks(lists, 1, range(1, 2), "epoch")[0].tolist() == expected


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({"labor": "batch"}, "'hop', 'layers', 'epoch', got 'batch'"),
        ({"labor": "hop", "replacement": Replacement.WITH}, "replace=True"),
        ({"labor": "hop", "subgraph": Subgraph.INDUCED}, "induced"),
        ({"labor": "epoch", "disjoint": True}, "disjoint=True"),
    ],
)
def test_refusals(rules: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        SamplingPlan((2,), **rules)


def test_times_are_refused() -> None:
    graph = graph_of([[1, 2, 3]])
    times = [TimeOrder.of(graph.in_edges, torch.arange(3))]
    with pytest.raises(ValueError, match="labor='layers' does not go with times"):
        MacrobatchSampler(graph, SamplingPlan((2,), labor="layers"), times=times)


def test_settings_say_it_only_where_it_is_set() -> None:
    """So that runs that were saved without it go on."""
    assert "labor" not in SamplingPlan((2,)).settings()
    assert SamplingPlan((2,), labor="hop").settings()["labor"] == "hop"
