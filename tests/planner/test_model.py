"""Predictions as functions of numbers."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyg_batchgnn.cache import Aggregation
from pyg_batchgnn.data import Dataset
from pyg_batchgnn.loader import ScheduleName
from pyg_batchgnn.planner import (
    Choices,
    Degrees,
    PlannerMachine,
    PlannerNetwork,
    PlannerProbe,
    PlannerSetting,
    TypeRows,
    Workload,
    predict,
    probe_degrees,
    probe_graph,
    search,
)
from pyg_batchgnn.planner.plans import best, workload_of
from pyg_batchgnn.planner.probe import Growth, growth_of
from pyg_batchgnn.planner.workload import rounds, row_bytes, sizes
from pyg_batchgnn.sample import Replacement
from pyg_batchgnn.store import CscGraph
from tests.support.tiers import examples

WORK = Workload(
    "w", (TypeRows("node", 100_000, 400, 8),), 2_000_000, 20_000, (10, 5, 3), batch_size=256, parameters=1000
)
NETWORK = PlannerNetwork(1e8)
MACHINE = PlannerMachine(forward=0.1, backward=0.1)


def probe(workload: Workload = WORK, ranks: int = 4) -> PlannerProbe:
    return probe_degrees(workload, Degrees.lognormal(workload.nodes, workload.edges, 1.2), ranks)


@examples(40)
@given(st.integers(0, 60), st.integers(0, 70), st.integers(0, 70))
def test_every_minibatch_is_in_one_fetch_group(minibatches: int, macrobatch: int, fetch: int) -> None:
    made = sizes(minibatches, macrobatch, fetch)
    assert sum(map(sum, made)) == minibatches
    most = macrobatch or minibatches
    assert all(sum(one) <= max(most, 1) and max(one) <= (fetch or max(most, 1)) for one in made)
    assert len(made) == (-(-minibatches // most) if most else 0)


@pytest.mark.parametrize(
    ("schedule", "hybrid", "aggregation", "relays"),
    [
        (ScheduleName.LOCAL, False, None, 4),
        (ScheduleName.GLOBAL, False, None, 6),
        (ScheduleName.BALANCED, False, None, 6),
        (ScheduleName.LOCAL, True, None, 0),
        (ScheduleName.LOCAL, False, Aggregation.MEAN, 2),
        (ScheduleName.GLOBAL, False, Aggregation.SYMMETRIC, 4),
    ],
)
def test_rounds(schedule: ScheduleName, hybrid: bool, aggregation: Aggregation | None, relays: int) -> None:
    work = dataclasses.replace(WORK, schedule=schedule)
    expected = rounds(work, probe(work), PlannerSetting(3, 2, hybrid=hybrid, aggregation=aggregation), 8)
    assert (expected.topology, expected.features) == (relays * 3, 2 * (2 + 2 + 1))
    assert expected.lookup == (2 if schedule is ScheduleName.GLOBAL and not hybrid else 0)


@examples(20)
@given(st.integers(1, 40), st.integers(1, 40), st.booleans(), st.sampled_from([None, *Aggregation]))
def test_a_larger_macrobatch_never_moves_more(
    one: int, other: int, hybrid: bool, aggregation: Aggregation | None
) -> None:
    small, large = sorted((one, other))
    if 20 % large or large % small:
        return  # groups of unequal size
    found = [
        predict(WORK, probe(), MACHINE, NETWORK, PlannerSetting(size, 0, "random", hybrid, aggregation))
        for size in (small, large)
    ]
    assert found[0].minibatches == 20
    assert found[1].rows <= found[0].rows * (1 + 1e-9)
    assert found[1].feature_bytes <= found[0].feature_bytes * (1 + 1e-9)
    assert sum(vars(found[1].rounds).values()) <= sum(vars(found[0].rounds).values())
    assert found[1].memory >= found[0].memory * 0.9


def test_responses_have_a_number_of_edges_for_each_section() -> None:
    """In the bytes that are sent and in the memory that responses take."""
    for fanout, wide in ((255, 1), (256, 4), (-1, 4)):
        work = dataclasses.replace(WORK, fanouts=(2, fanout), types=(TypeRows("node", 100_000, 0, 0, 1),))
        one = probe(work)
        empty = dataclasses.replace(
            one.full, nodes=10.0, asked=(100.0, 1e5), sections=(100.0, 1e5), answered=(0.0, 0.0)
        )
        found = [
            predict(work, dataclasses.replace(one, full=each), MACHINE, NETWORK, PlannerSetting(0))
            for each in (empty, dataclasses.replace(empty, sections=(300.0, 3e5)))
        ]
        more = work.minibatches(one.seeds) * work.fullness(one.seeds) * 2e5 * wide
        assert found[1].topology_bytes - found[0].topology_bytes == pytest.approx(more)
        assert found[1].memory > found[0].memory + more


def test_rows_of_one_type_are_padded_to_their_own_width() -> None:
    """Features of 4-byte numbers without labels need no rows of 8-byte numbers."""
    edges = torch.tensor([[0, 1], [1, 2]])
    splits = {"train": torch.arange(3)}
    data = Dataset.homogeneous("w", 3, edges, nodes={"x": torch.zeros(3, 2)}, splits=splits)
    work = workload_of(data, (2,), 1)
    assert work.types == (TypeRows("node", 3, 8, 0, 4, 2),)
    assert (work.nodes, work.features, work.attributes) == (3, 8, 0)
    assert row_bytes(work, PlannerSetting()) == (12,)


def test_hybrid_asks_nobody_for_edges_and_a_cache_spares_rows() -> None:
    plain, hybrid, cached = (
        predict(WORK, probe(), MACHINE, NETWORK, setting)
        for setting in (
            PlannerSetting(1),
            PlannerSetting(1, hybrid=True),
            PlannerSetting(1, feature_cache=2_000_000),
        )
    )
    assert hybrid.topology_bytes == 0 < plain.topology_bytes and hybrid.memory > plain.memory
    assert cached.rows < plain.rows and cached.memory > plain.memory - plain.rows * 1000
    everything = predict(WORK, probe(), MACHINE, NETWORK, PlannerSetting(1, feature_cache=1 << 40))
    assert everything.rows == pytest.approx(0, abs=1e-6)


def test_aggregates_pay_where_minibatches_do_not_overlap() -> None:
    """Appendix C: fewer bytes where the last hop finds more nodes than there were, more where it
    does not; GCN's rows are no wider, so that its bytes never grow.
    """

    def received(size: int, kind: Aggregation | None) -> float:
        return predict(WORK, probe(), MACHINE, NETWORK, PlannerSetting(size, aggregation=kind)).feature_bytes

    mean, symmetric = Aggregation.MEAN, Aggregation.SYMMETRIC
    assert received(1, mean) < received(1, None) and received(0, mean) > received(0, None)
    assert received(1, mean) > received(1, symmetric) and received(0, symmetric) <= received(0, None)


def test_the_recommended_setting_fits() -> None:
    probes = {"random": probe()}
    found = search(WORK, probes, MACHINE, NETWORK, Choices())
    chosen = best(found)
    assert chosen is not None and chosen.epoch <= 1.04 * min(
        one.epoch for one in found if not one.setting.aggregation
    )
    tight = MACHINE.on(1.0, chosen.memory * 0.97)
    other = best(search(WORK, probes, tight, NETWORK, Choices()))
    assert other is not None and other.memory <= tight.memory
    assert best(search(WORK, probes, MACHINE.on(1.0, 1.0), NETWORK, Choices())) is None


def test_cores() -> None:
    shared = MACHINE.on(0.5, 0)
    assert shared.speedup(100) == 0.5 and MACHINE.speedup(10) == 1.0
    many = MACHINE.on(16, 0)
    assert many.speedup(1) == 1.0 < many.speedup(4) < many.speedup(16) == many.speedup(99) < 16
    one, other = (predict(WORK, probe(), m, NETWORK, PlannerSetting()).seconds for m in (MACHINE, shared))
    assert other["forward"] == pytest.approx(2 * one["forward"])


def drawn(seed: int, nodes: int, samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns how likely each node is, and [samples, nodes] in which samples it was."""
    random = np.random.default_rng(seed)
    likely = random.beta(0.3, 2.0, nodes)
    return likely, random.random((samples, nodes)) < likely


@examples(15)
@given(st.integers(0, 1000), st.integers(1, 60), st.integers(1, 12))
def test_any_of_the_samples_have_what_was_counted(seed: int, nodes: int, samples: int) -> None:
    _, seen = drawn(seed, nodes, samples)
    growth = growth_of(seen.sum(0), samples, nodes)
    assert growth.distinct(0) == 0.0
    assert growth.distinct(1) == pytest.approx(seen.sum(1).mean())
    assert growth.distinct(samples) == pytest.approx(seen.any(0).sum())
    if samples > 1:
        pairs = [(seen[a] | seen[b]).sum() for a in range(samples) for b in range(a)]
        assert growth.distinct(2) == pytest.approx(np.mean(pairs))


@examples(15)
@given(st.integers(0, 1000), st.integers(1, 60), st.integers(1, 12))
def test_more_minibatches_never_have_fewer_nodes(seed: int, nodes: int, samples: int) -> None:
    growth = growth_of(drawn(seed, nodes, samples)[1].sum(0), samples, nodes)
    distinct = [growth.distinct(k) for k in range(3 * samples + 2)]
    steps = np.diff(distinct)
    assert (steps >= -1e-6).all() and distinct[-1] <= nodes + 1e-6
    assert (np.diff(steps[samples:]) <= 1e-6).all(), "each adds fewer than the one before"
    for kept in (0.0, nodes / 3, float(nodes)):
        missed = growth.missed(2, kept)
        assert -1e-9 <= missed <= distinct[2] + 1e-9
        assert kept < nodes or missed == pytest.approx(0.0, abs=1e-6)


def test_beyond_the_samples() -> None:
    """A third of the minibatches predicts the distinct nodes of all and a cache's gain."""
    likely, seen = drawn(1, 20_000, 8)
    growth = growth_of(seen.sum(0), 8, 20_000)
    for together in (12, 24):
        wanted = (1 - (1 - likely) ** together).sum()
        assert growth.distinct(together) == pytest.approx(wanted, rel=0.05)
    rest = np.sort(likely)[:-4000]
    assert growth.missed(4, 4000) == pytest.approx((1 - (1 - rest) ** 4).sum(), rel=0.1)


def test_between_whole_numbers() -> None:
    growth = Growth((10.0, 5.0), 40.0)
    assert growth.distinct(1.5) == pytest.approx((growth.distinct(1) + growth.distinct(2)) / 2)


def random_graph(nodes: int) -> tuple[CscGraph, Degrees]:
    """Edges in both directions between stubs that are paired at random."""
    degrees = Degrees.lognormal(nodes, 12.0 * nodes, 1.0)
    assert degrees.edges == pytest.approx(12.0 * nodes, rel=1e-3)
    draw = np.random.default_rng(0)
    degree = draw.choice(degrees.degree, nodes, p=degrees.nodes / nodes).round().astype(int)
    stubs = draw.permutation(np.repeat(np.arange(nodes), degree))
    stubs = stubs[: len(stubs) // 2 * 2].reshape(2, -1)
    edges = torch.from_numpy(np.concatenate([stubs, stubs[::-1]], 1).copy())
    values, counts = np.unique(degree, return_counts=True)
    return CscGraph.from_edge_index(edges, nodes), Degrees(values.astype(float), counts.astype(float))


@pytest.mark.parametrize("replacement", list(Replacement))
def test_a_random_graph(replacement: Replacement) -> None:
    nodes, ranks = 30_000, 4
    graph, degrees = random_graph(nodes)
    training = torch.arange(0, nodes, 3)
    work = Workload(
        "w", (TypeRows("node", nodes, 64, 8),), graph.num_edges, training.numel(), (8, 4, 3), batch_size=128
    )
    owner = torch.randint(ranks, (nodes,), generator=torch.Generator().manual_seed(0))
    seen = probe_graph(work, graph.typed, training, [owner], ranks=ranks, replacement=replacement)
    predicted = probe_degrees(work, degrees, ranks, replacement=replacement)
    for one, other in ((predicted.full, seen.full), (predicted.inner, seen.inner)):
        assert one.nodes == pytest.approx(other.nodes, rel=0.1)
        assert one.edges == pytest.approx(other.edges, rel=0.1)
        assert sum(one.asked[1:]) == pytest.approx(sum(other.asked[1:]), rel=0.12)
        for together in (1, 4, 16):
            wanted = other.remote.distinct(together)
            assert one.remote.distinct(together) == pytest.approx(wanted, rel=0.12)
    assert predicted.full.remote.missed(4, [nodes / 8]) == pytest.approx(
        seen.full.remote.missed(4, [nodes / 8]), rel=0.15
    )
