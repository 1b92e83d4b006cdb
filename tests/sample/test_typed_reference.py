"""The compiled sampler equals the reference on typed graphs, bit for bit, under every rule."""

from __future__ import annotations

import dataclasses

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from pyg_batchgnn.data import HOMOGENEOUS, Schema
from pyg_batchgnn.sample import Replacement, SamplingPlan, Seeds, Subgraph, TemporalStrategy
from tests.support.graph_strategies import epochs, fixed, random_seeds
from tests.support.typed_graphs import DrawnSeeds, TypedCase, check_typed, typed_cases, typed_seeds
from tests.support.typed_reference import ReferenceSeed

FANOUT = st.sampled_from([0, 1, 2, 5, 40, -1])
SHARE = st.sampled_from([0.1, 0.5, 0.3, 1.0])


@st.composite
def typed_plans(draw: st.DrawFn, schema: Schema, fanout: st.SearchStrategy[float]) -> SamplingPlan:
    """Draws a plan; some relations have fanouts of their own."""
    hops = draw(st.integers(1, 3))
    fanouts = st.lists(fanout, min_size=hops, max_size=hops).map(tuple)
    own = {relation: draw(fanouts) for relation in schema.relations if draw(st.booleans())}
    return SamplingPlan(
        draw(fanouts),
        draw(st.sampled_from(Replacement)),
        draw(st.booleans()),
        by_relation=own,  # type: ignore[arg-type]
        disjoint=draw(st.booleans()),
        temporal=draw(st.sampled_from(TemporalStrategy)),
        time_window=draw(st.sampled_from([None, None, 0, 3, 8])),
        subgraph=draw(st.sampled_from([Subgraph.DIRECTIONAL, Subgraph.DIRECTIONAL, Subgraph.INDUCED])),
    )


def check(
    data: st.DataObject, case: TypedCase, seed: int, epoch: int, *, excluding: bool = False, **rules: object
) -> None:
    fanout = st.one_of(FANOUT, SHARE) if rules.pop("shares", False) else FANOUT
    plan = dataclasses.replace(data.draw(typed_plans(case.schema, fanout)), **rules)  # type: ignore[arg-type]
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
