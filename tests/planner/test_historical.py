"""Predictions of epochs with historical embeddings."""

from __future__ import annotations

import dataclasses

import pytest

import pyg_batchgnn
from pyg_batchgnn.data import load_dataset
from pyg_batchgnn.history import HistoricalSettings
from pyg_batchgnn.planner import (
    Choices,
    Degrees,
    HistoricalPrediction,
    PlannerMachine,
    PlannerNetwork,
    TypeRows,
    Workload,
    predict_historical,
    probe_degrees,
)
from tests.support.ranks import run_ranks

WORK = Workload(
    "graph", (TypeRows("node", 400_000, 400, 8),), 8_000_000, 80_000, (15, 10, 5), parameters=10**5
)
MACHINE = PlannerMachine(forward=0.2, backward=0.2)
SLOW = PlannerNetwork(1.25e8, 1e-4)


def predicted(
    ranks: int = 4,
    settings: HistoricalSettings | None = None,
    workload: Workload = WORK,
    network: PlannerNetwork = SLOW,
) -> HistoricalPrediction:
    probe = probe_degrees(workload, Degrees.lognormal(workload.nodes, workload.edges, 1.0), ranks)
    settings = settings or HistoricalSettings()
    return predict_historical(workload, probe, MACHINE, network, settings, hidden=256)


def test_ranks_count_what_was_predicted() -> None:
    graph, fanouts, hidden = "generated:nodes=6000,features=32,classes=4,seed=3", (4, 3, 2), 16
    plan = pyg_batchgnn.plan(
        load_dataset(graph),
        ranks=2,
        network=SLOW,
        machine=MACHINE,
        fanouts=fanouts,
        batch_size=16,
        drop_last=False,
        hidden=0,
        choices=Choices(macrobatches=(1,)),
        samples=6,
    )
    tried = [HistoricalSettings(push=None), HistoricalSettings(lines=500, push=40, delay=2)]
    arguments = {"num_neighbors": list(fanouts), "batch_size": 16, "replace": True}
    given = {"dataset": graph, "settings": [vars(one) for one in tried], "arguments": arguments}
    results = run_ranks("tests.planner.job_planned:push", 2, {**given, "hidden": hidden}, hosts=[0, 1])
    for at, settings in enumerate(tried):
        found = predict_historical(
            plan.workload, plan.probes["random"], plan.machine, plan.network, settings, hidden
        )
        seen = [result.value[at] for result in results]
        assert {one["steps"] for one in seen} == {one["rounds"] for one in seen} == {found.minibatches}
        for name, predicted in (
            ("edges", found.edges),
            ("rows", found.pushed_rows),
            ("bytes", found.pushed_bytes),
            ("feature_bytes", found.feature_bytes),
        ):
            measured = sum(one[name] for one in seen) / len(seen)
            assert predicted == pytest.approx(measured, rel=0.1), name


def test_one_hop_pushes_nothing() -> None:
    found = predicted(workload=dataclasses.replace(WORK, fanouts=(10,)))
    assert found.pushed_rows == found.pushed_bytes == found.seconds["push"] == 0
    assert found.minibatches > 0 < found.feature_bytes


def test_one_rank_pushes_nothing_and_samples_as_in_the_exact_mode() -> None:
    found = predicted(1)
    assert found.pushed_bytes == found.feature_bytes == found.seconds["push"] == found.hidden_seconds == 0
    probe = probe_degrees(WORK, Degrees.lognormal(WORK.nodes, WORK.edges, 1.0), 1)
    assert found.edges == pytest.approx(probe.full.edges)


def test_pushes_are_bounded_per_step_layer_and_peer() -> None:
    bounded, free = predicted(), predicted(settings=HistoricalSettings(push=None))
    assert bounded.minibatches == WORK.minibatches([WORK.training // 4] * 4)
    assert bounded.pushed_rows <= bounded.minibatches * 3 * 2 * 2000 < free.pushed_rows
    assert bounded.pushed_bytes == pytest.approx(bounded.pushed_rows * (8 + 4 * 256))


def test_minibatches_that_stop_at_the_border_are_smaller() -> None:
    edges = [predicted(ranks).edges for ranks in (1, 2, 4, 16)]
    assert edges == sorted(edges, reverse=True) and edges[-1] < 0.5 * edges[0]


def test_pushes_that_take_longer_than_training_are_waited_for() -> None:
    quick, slow = predicted(network=PlannerNetwork(1e10, 1e-5)), predicted(network=PlannerNetwork(1e6, 1e-3))
    assert quick.seconds["push"] == 0 < quick.hidden_seconds < slow.hidden_seconds
    assert slow.seconds["push"] > 0


def test_features_are_fetched_for_as_many_halo_nodes_as_there_are_lines() -> None:
    few = predicted(settings=HistoricalSettings(lines=1000))
    assert few.feature_bytes == 1000 * (400 + 8) < predicted().feature_bytes
