"""The reference sampler on cases small enough to be worked out by hand, and on published values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from itertools import islice

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from pyg_batchgnn.data import HOMOGENEOUS
from pyg_batchgnn.sample import Replacement, SamplingPlan, Seeds, minibatch_key
from tests.support import reference_sampler as ref
from tests.support.reference_sampler import reference_key
from tests.support.sampling_cases import (
    Csc,
    big_fanouts,
    check_graph,
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
from tests.support.typed_graphs import (
    DrawnSeeds,
    TypedCase,
    check_typed,
    typed_cases,
    typed_plans,
    typed_seeds,
)
from tests.support.typed_reference import ReferenceSeed

WITH, WITHOUT = Replacement.WITH, Replacement.WITHOUT


def scaled(*values: tuple[int, int]) -> Iterator[int]:
    """Yields words on which bounded(n) gives v: the middle of the v-th of n intervals."""
    return iter([(2 * v + 1) * 2**63 // n for v, n in values])


def test_words_are_splitmix64() -> None:
    """The first outputs of SplitMix64 seeded with 0 and with 1234567, as published."""
    assert list(islice(ref.words(0), 3)) == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert list(islice(ref.words(1234567), 3)) == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


@pytest.mark.parametrize(
    ("words", "n", "value", "used"),
    [
        ([2**63 + 1], 10, 5, 1),  # just above the middle of the range of words falls in the middle of [0, 10)
        ([2**64 - 1], 10, 9, 1),
        ([1], 10, 0, 1),  # low half 10 is not below n
        ([0, 2**63 + 1], 10, 5, 2),  # 2^64 mod 10 = 6, low halves below that are rejected
        ([2**63, 0, 2**63 + 1], 10, 5, 3),
        ([pow(5, -1, 2**64)], 5, 4, 1),  # low half 1 is below n but not below 2^64 mod 5 = 1: kept
        ([0], 8, 0, 1),  # a power of two divides 2^64: nothing to reject
        ([0], 1, 0, 1),
        ([0, 3], 2**63 + 1, 1, 2),  # 2^64 mod (2^63 + 1) = 2^63 - 1: half of the words are rejected
    ],
)
def test_bounded(words: list[int], n: int, value: int, used: int) -> None:
    left = iter(words)
    assert ref.bounded(left, n) == value
    assert len(list(left)) == len(words) - used


def test_floyd_by_hand() -> None:
    # d = 5, k = 3: j = 2, 3, 4. t = 1 is new; t = 1 is taken, so 3; t = 3 is taken, so 4.
    assert ref.floyd(5, 3, scaled((1, 3), (1, 4), (3, 5))) == [1, 3, 4]
    # All new.
    assert ref.floyd(5, 3, scaled((2, 3), (0, 4), (4, 5))) == [2, 0, 4]
    # The last j may be drawn itself: an upper bound of j instead of j + 1 would never give it.
    assert ref.floyd(2, 1, scaled((1, 2))) == [1]


def test_minibatch_by_hand() -> None:
    """All neighbours of seeds [1, 0, 1] for two hops. Edges, by id:

    0: 2->1, 1: 0->1, 2: 3->0, 3: 1->1, 4: 2->1, 5: 4->3
    """
    indptr, indices, edge_ids = ref.reference_csc([2, 0, 3, 1, 2, 4], [1, 1, 0, 1, 1, 3], num_nodes=6)
    batch = ref.reference_sample(indptr, indices, edge_ids, [1, 0, 1], [-1, -1], WITHOUT, seed=0, epoch=0)
    assert batch.node == [1, 0, 1, 2, 3, 4]  # three seed rows; hop 0 finds 2 and 3; hop 1 finds 4
    assert batch.nodes_per_hop == [3, 2, 1]
    assert batch.edges_per_hop == [9, 1]
    assert batch.edge == [0, 1, 3, 4, 2, 0, 1, 3, 4, 5]  # both rows of seed 1 have the same edges
    assert batch.indices == [3, 1, 0, 3, 4, 3, 1, 0, 3, 5]  # source 1 is row 0, its first occurrence
    assert batch.indptr == [0, 4, 5, 9, 9, 10]  # node 2 has no in-edges


def check(
    data: st.DataObject, case: TypedCase, seed: int, epoch: int, *, excluding: bool = False, **rules: object
) -> None:
    shares = bool(rules.pop("shares", False))
    plan = data.draw(typed_plans(case.schema, shares, not case.timed, **rules))
    drawn = data.draw(st.lists(typed_seeds(case, excluding), max_size=3))
    check_typed(case, plan, seed, epoch, drawn, data.draw(st.sampled_from([1, 3])))


@pytest.mark.parametrize(("timed", "weighted", "excluding"), [*itertools.product([False, True], repeat=3)])
def test_every_rule(timed: bool, weighted: bool, excluding: bool) -> None:
    """Shares and examples, with times, weights and excluded pairs or without."""

    @fixed(80)
    @given(st.data(), typed_cases(timed, weighted), random_seeds, epochs)
    def run(data: st.DataObject, case: TypedCase, seed: int, epoch: int) -> None:
        check(data, case, seed, epoch, excluding=excluding, shares=True)

    run()


@pytest.mark.parametrize("fanout", [41, 60, 98])
@pytest.mark.parametrize("kind", ["plain", "skewed"])
def test_long_lists_of_weighted_picks(fanout: int, kind: str) -> None:
    """Earlier picks are remembered in a table, also from one pass to the next."""
    relation = HOMOGENEOUS.relations[0]
    edges = torch.stack([torch.arange(300), torch.arange(300) % 3])
    weight = 10.0 ** (torch.arange(300.0, dtype=torch.float64) % 17 * (1 if kind == "skewed" else 0.1))
    case = TypedCase(HOMOGENEOUS, {"node": 300}, {relation: edges}, {}, {relation: weight})
    seeds = DrawnSeeds(
        Seeds.of(HOMOGENEOUS, {"node": torch.arange(3)}),
        [ReferenceSeed("node", node, node) for node in range(3)],
        set(),
    )
    check_typed(case, SamplingPlan((fanout,)), 1, 2, [seeds])


@fixed(200)
@given(st.data(), csc_graphs(), plans(fanouts()), random_seeds, epochs, thread_counts)
def test_any_csc(
    data: st.DataObject, csc: Csc, plan: SamplingPlan, seed: int, epoch: int, threads: int | None
) -> None:
    check_graph(csc, plan, seed, data.draw(seed_lists(csc.num_nodes)), epoch, threads)


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


def test_more_rows_than_nodes() -> None:
    """Duplicate seeds have rows of their own: a minibatch can have more rows than nodes."""
    count = 4000
    indptr = torch.cat([torch.arange(count + 1), torch.full((count,), count)])
    csc = Csc(indptr, torch.arange(count, 2 * count), None)
    seeds = torch.cat([torch.arange(count), torch.zeros(count, dtype=torch.int64)])
    check_graph(csc, SamplingPlan((1, 1), Replacement.WITH), 0, [seeds], epoch=0)


@fixed(100)
@given(st.lists(st.integers(0, 2**62), max_size=30))
def test_minibatch_key(seeds: list[int]) -> None:
    assert minibatch_key(torch.tensor(seeds, dtype=torch.int64)) == reference_key(seeds)
