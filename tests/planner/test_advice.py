"""The planner's advice on the aggregation cache."""

from __future__ import annotations

import dataclasses

import pytest

from pyg_batchgnn.cache import Aggregation
from pyg_batchgnn.planner import (
    Choices,
    Degrees,
    PlannerMachine,
    PlannerNetwork,
    Prediction,
    TypeRows,
    Workload,
    probe_degrees,
    search,
)
from pyg_batchgnn.planner.advice import aggregation_advice, with_aggregates
from pyg_batchgnn.planner.search import best
from pyg_batchgnn.planner.wording import apart

#: Minibatches of an epoch that together need nearly every node, as those of the arxiv-like graph
#: do.
WORK = Workload("w", (TypeRows("node", 40_000, 512, 8),), 600_000, 20_000, (15, 10, 5), batch_size=256)
#: A third of a step goes into the first layer's aggregation.
MACHINE = PlannerMachine(forward=0.001, backward=0.002, first_layer=0.33)


def planned(
    kind: Aggregation, network: PlannerNetwork, machine: PlannerMachine = MACHINE
) -> tuple[list[Prediction], Prediction]:
    probe = probe_degrees(WORK, Degrees.lognormal(WORK.nodes, WORK.edges, 1.0), 4)
    choices = Choices(macrobatches=(1, 0), fetches=(1.0,), hybrid=(False,), aggregation=(None, kind))
    found = search(WORK, {"random": probe}, machine, network, choices)
    chosen = best(found)
    assert chosen is not None and chosen.setting.macrobatch == 0
    return found, chosen


@pytest.mark.parametrize("kind", [Aggregation.MEAN, Aggregation.SUM])
def test_rows_twice_as_wide_are_advised_against_where_all_nodes_are_needed(kind: Aggregation) -> None:
    found, chosen = planned(kind, PlannerNetwork(125e6))
    kept = with_aggregates(found, chosen)
    assert kept is not None and kept.feature_bytes > 1.5 * chosen.feature_bytes
    every, one = aggregation_advice(found, chosen)
    assert every.startswith("Advised against: the aggregation cache with B = all")
    assert "because rows are twice as wide and" in every and "as many are still needed" in every
    assert f"{kept.preparation:.2f} s instead of {chosen.preparation:.2f} s" in every
    assert f"an epoch {kept.epoch:.2f} s instead of {chosen.epoch:.2f} s" in every
    assert one.startswith(
        "The aggregation cache, which changes what the first layer computes, is worth a try"
    )
    assert "with B = 1: " in one and "twice" not in one


def test_shorter_training_steps_do_not_outweigh_more_fetching() -> None:
    found, chosen = planned(
        Aggregation.MEAN, PlannerNetwork(125e6), PlannerMachine(forward=1.0, backward=2.0, first_layer=0.5)
    )
    kept = with_aggregates(found, chosen)
    assert kept is not None and kept.epoch < chosen.epoch and kept.preparation > chosen.preparation
    assert aggregation_advice(found, chosen)[0].startswith("Advised against")


def test_aggregates_in_place_of_features_are_not() -> None:
    """GCN's."""
    found, chosen = planned(Aggregation.SYMMETRIC, PlannerNetwork(125e6))
    kept = with_aggregates(found, chosen)
    assert kept is not None and kept.feature_bytes <= chosen.feature_bytes
    for sentence in aggregation_advice(found, chosen):
        assert "worth a try" in sentence and "twice" not in sentence


def test_aggregates_that_do_not_fit() -> None:
    found, chosen = planned(Aggregation.MEAN, PlannerNetwork(125e6))
    tight = [dataclasses.replace(one, fits=one.setting.aggregation is None) for one in found]
    assert all(line.endswith("which is not available.") for line in aggregation_advice(tight, chosen))


def test_nothing_is_said_of_what_was_not_tried() -> None:
    found, chosen = planned(Aggregation.MEAN, PlannerNetwork(125e6))
    assert aggregation_advice([one for one in found if one.setting.aggregation is None], chosen) == []


@pytest.mark.parametrize(
    ("one", "other", "texts"),
    [
        (1.25, 0.5, ("1.25", "0.50")),
        (0.0012, 0.0018, ("0.001", "0.002")),
        (3.00004, 3.0, ("3.00004", "3.00000")),
        (3.0, 3.0, ("3.00", "3.00")),
    ],
)
def test_numbers_that_differ_look_different(one: float, other: float, texts: tuple[str, str]) -> None:
    assert apart(one, other, lambda number, digits: f"{number:.{digits}f}") == texts


def test_a_reason_shows_the_difference_that_decided() -> None:
    found, chosen = planned(Aggregation.MEAN, PlannerNetwork(125e6))
    kept = with_aggregates(found, chosen)
    assert kept is not None
    near = dataclasses.replace(chosen, setting=kept.setting, feature_bytes=chosen.feature_bytes + 900.0)
    (line, *_) = aggregation_advice([chosen, near], chosen)
    words = line.split("a rank receives ")[1].split(";")[0].split(", because")[0]
    received, before = words.split(" instead of ")
    assert received != before
