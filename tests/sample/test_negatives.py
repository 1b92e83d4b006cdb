"""Negatives equal the plain reference bit for bit, and their statistics are those of the law."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pyg_batchgnn.ops import InEdges, WordStreams, build_csc
from pyg_batchgnn.sample import ExistingPairs, NegativeMode, NegativePlan, NodePool, negative_key
from pyg_batchgnn.sample.negatives import NegativeDraw
from tests.support.chi_square import assert_uniform, p_of_cells
from tests.support.reference_negatives import ReferenceNegatives, ReferencePool, reference_negative_key
from tests.support.reference_sampler import bounded, words
from tests.support.tiers import each, examples, in_all

BINARY, TRIPLET = NegativeMode.BINARY, NegativeMode.TRIPLET


def pools(
    num_nodes: int, time: list[int] | None, weight: list[float] | None
) -> tuple[NodePool, ReferencePool]:
    tensors = (
        None if time is None else torch.tensor(time),
        None if weight is None else torch.tensor(weight).double(),
    )
    return NodePool.of(num_nodes, *tensors), ReferencePool(num_nodes, time, weight)


def graph_of(
    pairs: set[tuple[int, int]], sources: NodePool, targets: NodePool, mode: NegativeMode
) -> ExistingPairs:
    num_sources, num_targets = sources.num_nodes, targets.num_nodes
    edges = torch.tensor(sorted(pairs) * 2, dtype=torch.int64).view(-1, 2).t()
    whole = build_csc(edges.contiguous(), max(num_sources, num_targets))
    in_edges = InEdges(whole.indptr[: num_targets + 1], whole.indices)
    by = ExistingPairs.by_target if mode is BINARY else ExistingPairs.by_source
    return by(in_edges, sources, targets)


def test_rejected_words_are_drawn_again() -> None:
    # With a bound just above 2**62 every fourth word or so is rejected.
    bound = 2**62 + 1
    streams = WordStreams(torch.arange(200))
    expected = [words(key) for key in range(200)]
    every = torch.arange(200)
    for _ in range(3):
        drawn = streams.bounded(torch.full((200,), bound), every)
        assert drawn.tolist() == [bounded(word, bound) for word in expected]
    used = [next(word) for word in expected]
    assert streams.next(every).tolist() == [word - 2**64 * (word >> 63) for word in used]


@st.composite
def cases(draw: st.DrawFn) -> dict[str, object]:
    num_sources, num_targets = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    node = lambda n: st.integers(0, n - 1)  # noqa: E731
    links = draw(st.lists(st.tuples(node(num_sources), node(num_targets)), min_size=1, max_size=7))
    timed = draw(st.booleans())
    times = lambda n: draw(st.lists(st.integers(-3, 3), min_size=n, max_size=n)) if timed else None  # noqa: E731
    weights = lambda n: draw(  # noqa: E731
        st.none() | st.lists(st.sampled_from([0.0, 0.5, 1.0, 1e-9, 3e7]), min_size=n, max_size=n)
    )
    pairs = st.sets(st.tuples(node(num_sources), node(num_targets)), max_size=36)
    return {
        "sizes": (num_sources, num_targets),
        "links": links,
        "times": times(len(links)),
        "node_times": (times(num_sources), times(num_targets)),
        "weights": (weights(num_sources), weights(num_targets)),
        "edges": draw(st.none() | pairs),
        "seed": draw(st.integers(0, 2**64 - 1)),
    }


def drawn(
    plan: NegativePlan, links: list[tuple[int, int]], times: list[int] | None, key: int
) -> list[list[int]]:
    source, target = torch.tensor(links).view(-1, 2).t()
    found = NegativeDraw(plan, source, target, None if times is None else torch.tensor(times), key).draw()
    if plan.mode is BINARY:
        assert found.positive.tolist() == [j % len(links) for j in range(found.positive.numel())]
        return torch.stack([found.source, found.target], dim=1).tolist()
    assert torch.equal(found.source, source[found.positive])
    return found.target.view(len(links), -1).tolist()


@examples(150, deadline=None)
@given(case=cases(), mode=st.sampled_from(NegativeMode), amount=st.sampled_from([1, 3, 0.4, 1.5]))
def test_negatives_equal_the_reference(case: dict, mode: NegativeMode, amount: float) -> None:
    amount = amount if mode is BINARY else max(1, int(amount))
    made = [pools(*args) for args in zip(case["sizes"], case["node_times"], case["weights"], strict=True)]
    (sources, reference_sources), (targets, reference_targets) = made
    edges = case["edges"]
    existing = None if edges is None else graph_of(edges, sources, targets, mode)
    plan = NegativePlan(mode, amount, sources, targets, existing)
    reference = ReferenceNegatives(amount, reference_sources, reference_targets, edges)
    key = negative_key(case["seed"], 5, 77, None)
    assert key == reference_negative_key(case["seed"], 5, 77, None)
    law = reference.binary if mode is BINARY else reference.triplet
    try:
        expected = [list(one) for one in law(case["links"], case["times"], key)]
    except ValueError:
        expected = None  # nothing is allowed, or everything exists
    if expected is None:
        with pytest.raises(ValueError, match=r"link \(\d, \d\) has no negative"):
            drawn(plan, case["links"], case["times"], key)
    else:
        assert drawn(plan, case["links"], case["times"], key) == expected


def test_weights_of_several_blocks_equal_the_reference() -> None:
    generator = np.random.default_rng(3)
    weight = generator.random(10_000).round(2).tolist()
    time = generator.integers(0, 50, 10_000).tolist()
    links, times = [(i, i) for i in range(40)], list(range(5, 45))
    for node_time in (None, time):
        pool, reference = pools(10_000, node_time, weight)
        plan = NegativePlan(TRIPLET, 2, pool, pool)
        expected = ReferenceNegatives(2, reference, reference).triplet(links, times, 9)
        assert drawn(plan, links, times, 9) == expected


def test_a_negative_depends_on_every_part_of_its_key() -> None:
    pool = NodePool.of(10**9)
    plan = NegativePlan(BINARY, 4, pool, pool)
    links = [(1, 2), (3, 4)]
    keys = [(0, 0, 0, None), (1, 0, 0, None), (0, 1, 0, None), (0, 0, 1, None), (0, 0, 0, 1)]
    every = [tuple(pair) for key in keys for pair in drawn(plan, links, None, negative_key(*key))]
    assert len(set(every)) == len(every) == 40
    assert len({node for pair in every for node in pair}) == 80  # the two ends have streams of their own


def counts(plan: NegativePlan, num_nodes: int, time: int | None = None) -> np.ndarray:
    zeros = torch.zeros(500, dtype=torch.int64)
    times = None if time is None else zeros + time
    every = [
        NegativeDraw(plan, zeros, zeros, times, negative_key(8, 0, i, None)).draw().target for i in range(40)
    ]
    return torch.cat(every).bincount(minlength=num_nodes).numpy()


@pytest.mark.parametrize("mode", NegativeMode)
@pytest.mark.parametrize("weight", [None, torch.tensor([1.0, 0.0, 2.0, 0.5, 0.0, 8.0])])
def test_negatives_are_uniform_or_follow_their_weights(mode: NegativeMode, weight: Tensor | None) -> None:
    pool = NodePool.of(6, weight=weight)
    found = counts(NegativePlan(mode, 1, pool, pool), 6)
    share = np.ones(6) if weight is None else weight.double().numpy()
    assert not found[share == 0].any()
    assert_uniform(p_of_cells(found[share > 0], (share / share.sum())[share > 0]))


def test_timed_negatives_are_uniform_among_those_allowed() -> None:
    time = torch.tensor([5, 1, 3, 9, 3, 2])
    for weight in (None, torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])):
        pool = NodePool.of(6, time, weight)
        found = counts(NegativePlan(TRIPLET, 1, pool, pool), 6, time=3)
        allowed = (time <= 3).numpy()
        assert found[~allowed].sum() == 0
        share = np.ones(6) if weight is None else weight.double().numpy()
        assert_uniform(p_of_cells(found[allowed], share[allowed] / share[allowed].sum()))


@pytest.mark.parametrize("weight", [None, torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 0.0])])
@each
@pytest.mark.parametrize("free", [[1, 6], *in_all([0], [0, 2, 4, 6])])
def test_triplets_that_avoid_edges_are_drawn_from_what_is_free(
    free: list[int], weight: Tensor | None
) -> None:
    pool = NodePool.of(8, weight=weight)
    taken = {(0, node) for node in range(8) if node not in free}
    plan = NegativePlan(TRIPLET, 1, pool, pool, graph_of(taken, pool, pool, TRIPLET))
    found = counts(plan, 8)
    share = (torch.ones(8) if weight is None else weight).double().numpy()[free]
    assert found.sum() == found[free].sum()
    if len(free) > 1:
        assert_uniform(p_of_cells(found[free], share / share.sum()))


def test_pairs_that_avoid_edges_are_uniform_where_few_exist() -> None:
    taken = {(0, 0), (1, 2), (2, 2), (3, 1)}
    pool = NodePool.of(4)
    plan = NegativePlan(BINARY, 1, pool, pool, graph_of(taken, pool, pool, BINARY))
    zeros = torch.zeros(4000, dtype=torch.int64)
    found = NegativeDraw(plan, zeros, zeros, None, 12).draw()
    cells = (found.source * 4 + found.target).bincount(minlength=16).numpy()
    free = np.array([(s, t) not in taken for s in range(4) for t in range(4)])
    assert cells[~free].sum() == 0
    assert_uniform(p_of_cells(cells[free], np.full(12, 1 / 12)))


def test_the_last_resort_passes_over_targets_of_weight_zero() -> None:
    """Target 0 is always drawn and has an edge from every source; target 1 has no edge."""
    sources, targets = NodePool.of(3), NodePool.of(3, weight=torch.tensor([1.0, 0.0, 1e-12]))
    taken = {(source, 0) for source in range(3)}
    plan = NegativePlan(BINARY, 1, sources, targets, graph_of(taken, sources, targets, BINARY))
    found = drawn(plan, [(0, 0)] * 20, None, 5)
    assert [target for _, target in found] == [2] * 20


def test_a_link_earlier_than_every_node_gets_the_earliest_node() -> None:
    """As in PyG; nodes of weight zero are still never drawn."""
    time, links = torch.tensor([7, 5, 6, 5]), [(0, 1), (2, 1)]
    pool, late = NodePool.of(4), NodePool.of(4, time)
    triplets = NegativePlan(TRIPLET, 2, pool, late)
    found = [drawn(triplets, links, [9, early], 0) for early in (4, -(2**40))]
    assert [one[1] for one in found] == [[1, 1]] * 2
    draw = NegativeDraw(triplets, *torch.tensor(links).t(), torch.tensor([5, 4]), 0)
    assert draw.late == 2 and triplets.early(torch.tensor([5, 4, 3])).tolist() == [1, 2]
    pairs = NegativePlan(BINARY, 2, late, late)
    assert drawn(pairs, links, [4, 4], 0) == [[1, 1]] * 4
    assert NegativeDraw(pairs, *torch.tensor(links).t(), torch.tensor([4, 6]), 0).late == 2
    weighted = NodePool.of(4, time, torch.tensor([1.0, 0.0, 1.0, 0.0]))
    assert drawn(NegativePlan(TRIPLET, 1, pool, weighted), links, [5, 4], 0) == [[2], [2]]


def test_errors_name_the_link() -> None:
    pool, links = NodePool.of(3), [(0, 1), (2, 1)]
    with pytest.raises(ValueError, match=r"link \(0, 1\) has no negative source: the graph has no node"):
        drawn(NegativePlan(BINARY, 2, NodePool.of(0, torch.tensor([])), pool), links, [-1, 4], 0)
    nothing = NodePool.of(3, weight=torch.zeros(3))
    with pytest.raises(ValueError, match=r"link \(0, 1\) has no negative target: no node of positive weight"):
        drawn(NegativePlan(TRIPLET, 1, pool, nothing), links, None, 0)


@pytest.mark.parametrize("mode", NegativeMode)
def test_a_complete_graph_has_no_negatives(mode: NegativeMode) -> None:
    pool = NodePool.of(3)
    complete = graph_of({(s, t) for s in range(3) for t in range(3)}, pool, pool, mode)
    with pytest.raises(ValueError, match=r"link \(2, 1\) has no negative: .*exclude_existing"):
        drawn(NegativePlan(mode, 1, pool, pool, complete), [(2, 1)], None, 0)


def test_pairs_that_cannot_be_numbered_are_refused() -> None:
    edges = build_csc(torch.empty(2, 0, dtype=torch.int64), 1)
    with pytest.raises(ValueError, match="63 bits"):
        ExistingPairs.by_source(edges, NodePool.of(2**63), NodePool.of(1))
