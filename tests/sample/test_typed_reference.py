"""The compiled sampler equals the reference on typed graphs, bit for bit, under every rule."""

from __future__ import annotations

import dataclasses

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from pyg_batchgnn.data import HOMOGENEOUS
from pyg_batchgnn.sample import SamplingPlan, Seeds, Subgraph
from tests.support.graph_strategies import epochs, fixed, random_seeds
from tests.support.typed_graphs import (
    DrawnSeeds,
    TypedCase,
    check_typed,
    typed_cases,
    typed_plans,
    typed_seeds,
)
from tests.support.typed_reference import ReferenceSeed


def check(
    data: st.DataObject, case: TypedCase, seed: int, epoch: int, *, excluding: bool = False, **rules: object
) -> None:
    shares = bool(rules.pop("shares", False))
    plan = dataclasses.replace(data.draw(typed_plans(case.schema, shares)), **rules)  # type: ignore[arg-type]
    drawn = data.draw(st.lists(typed_seeds(case, excluding), max_size=3))
    check_typed(case, plan, seed, epoch, drawn, data.draw(st.sampled_from([1, 3])))


@fixed(60)
@given(st.data(), typed_cases(), random_seeds, epochs)
def test_types(data: st.DataObject, case: TypedCase, seed: int, epoch: int) -> None:
    check(data, case, seed, epoch, disjoint=False, subgraph=Subgraph.DIRECTIONAL)


@fixed(60)
@given(st.data(), typed_cases(), random_seeds, epochs)
def test_shares_and_examples(data: st.DataObject, case: TypedCase, seed: int, epoch: int) -> None:
    check(data, case, seed, epoch, shares=True)


@fixed(80)
@given(st.data(), typed_cases(timed=True), random_seeds, epochs)
def test_times(data: st.DataObject, case: TypedCase, seed: int, epoch: int) -> None:
    check(data, case, seed, epoch, shares=True)


@fixed(80)
@given(st.data(), typed_cases(weighted=True), random_seeds, epochs)
def test_weights(data: st.DataObject, case: TypedCase, seed: int, epoch: int) -> None:
    check(data, case, seed, epoch, shares=True)


@fixed(80)
@given(st.data(), typed_cases(timed=True, weighted=True), random_seeds, epochs)
def test_times_and_weights(data: st.DataObject, case: TypedCase, seed: int, epoch: int) -> None:
    check(data, case, seed, epoch, shares=True)


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


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_exclusion(timed: bool, weighted: bool) -> None:
    @fixed(40)
    @given(st.data(), typed_cases(timed, weighted), random_seeds, epochs)
    def run(data: st.DataObject, case: TypedCase, seed: int, epoch: int) -> None:
        check(data, case, seed, epoch, excluding=True, shares=True)

    run()
