"""Predictions as functions of numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyg_batchgnn.cache import Aggregation
from pyg_batchgnn.data import Dataset
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
from pyg_batchgnn.planner.workload import row_bytes
from pyg_batchgnn.sample import ALL_NEIGHBORS, Replacement
from pyg_batchgnn.store import CscGraph
from tests.support.tiers import examples

WORK = Workload(
    "w", (TypeRows("node", 100_000, 400, 8),), 2_000_000, 20_000, (10, 5, 3), batch_size=256, parameters=1000
)
NETWORK = PlannerNetwork(1e8)
MACHINE = PlannerMachine(forward=0.1, backward=0.1)


def probe(workload: Workload = WORK, ranks: int = 4) -> PlannerProbe:
    return probe_degrees(workload, Degrees.lognormal(workload.nodes, workload.edges, 1.2), ranks)


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


def test_counts_of_edges_are_as_wide_as_the_fanout_needs() -> None:
    def received(fanout: int) -> float:
        work = Workload("w", WORK.types, 2_000_000, 20_000, (fanout, fanout), parameters=1000)
        degrees = Degrees(np.full(1, 20.0), np.full(1, 1e5))  # all in-edges are taken
        found = probe_degrees(work, degrees, 4, replacement=Replacement.WITHOUT)
        return predict(work, found, MACHINE, NETWORK, PlannerSetting(1)).topology_bytes

    one, two, same, four, unbounded = map(received, (255, 256, 65_535, 65_536, ALL_NEIGHBORS))
    assert one < two == same < four == unbounded and four - two == pytest.approx(2 * (two - one))


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


def random_graph(nodes: int) -> tuple[CscGraph, Degrees]:
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
