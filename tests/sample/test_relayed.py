"""Sampling over the parts of typed graphs equals one process, bit for bit, under every rule."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

from pyg_batchgnn.sample import Layout, SampledMinibatch, SamplingPlan, Subgraph
from tests.support.graph_strategies import fixed, random_seeds
from tests.support.relayed import EPOCH, RelayedSampler, Traffic, owners_of
from tests.support.traffic import asked_nodes, remote_edges
from tests.support.typed_graphs import TypedCase, typed_cases, typed_plans, typed_seeds

PARTS = st.sampled_from([1, 2, 3, 4, 18])


def check(
    data: st.DataObject, case: TypedCase, seed: int, *, excluding: bool = False, **rules: object
) -> None:
    plan = data.draw(typed_plans(case.schema, shares=True))
    plan = dataclasses.replace(plan, **rules)  # type: ignore[arg-type]
    parts = data.draw(PARTS)
    owners = data.draw(owners_of(case, parts))
    lists = st.lists(typed_seeds(case, excluding), max_size=2)
    seeds = [[one.seeds for one in data.draw(lists)] for _ in range(parts)]
    sampler = RelayedSampler(case, owners, parts, plan)
    layout = data.draw(st.sampled_from(Layout))
    found = sampler.sample(seeds, seed, layout, excluding)
    alone = case.sampler(plan, seed, layout)
    wanted = [alone.sample(own, EPOCH) for own in seeds]
    for mine, theirs in zip(found, wanted, strict=True):
        for batch, right in zip(mine, theirs, strict=True):
            assert_same_typed(batch, right)
    assert sampler.traffic == expected_traffic(case, plan, seed, owners, wanted, seeds)


def assert_same_typed(batch: SampledMinibatch, right: SampledMinibatch) -> None:
    assert batch.key == right.key and batch.seed_types == right.seed_types
    for mine, theirs in zip(batch.nodes, right.nodes, strict=True):
        assert torch.equal(mine.node, theirs.node)
        assert mine.nodes_per_hop == theirs.nodes_per_hop
        assert (mine.example is None) == (theirs.example is None)
        assert mine.example is None or torch.equal(mine.example, theirs.example)
    for ours, other in zip(batch.edges, right.edges, strict=True):
        assert torch.equal(ours.indptr, other.indptr) and torch.equal(ours.edge_index, other.edge_index)
        assert ours.indices.dtype == other.indices.dtype and ours.edges_per_hop == other.edges_per_hop
        assert (ours.edge is None) == (other.edge is None)
        assert ours.edge is None or torch.equal(ours.edge, other.edge)


def expected_traffic(
    case: TypedCase,
    plan: SamplingPlan,
    seed: int,
    owners: Sequence[Tensor],
    wanted: Sequence[Sequence[SampledMinibatch]],
    seeds: Sequence[Sequence[object]],
) -> Traffic:
    """The formula: expanded remote nodes that a relation with a fanout leads into, and their picks.

    For an induced subgraph, every owner of a node that may be a target gets all nodes once more,
    and answers with the edges.
    """
    traffic = Traffic()
    directional = case.sampler(dataclasses.replace(plan, subgraph=Subgraph.DIRECTIONAL), seed)
    for rank, batches in enumerate(wanted):
        for batch, picked in zip(batches, directional.sample(seeds[rank], EPOCH), strict=True):  # type: ignore[arg-type]
            away = [owner[one.node] != rank for owner, one in zip(owners, batch.nodes, strict=True)]
            traffic.nodes += asked_nodes(plan, batch, away)
            traffic.picks += remote_edges(picked, away)
            if plan.subgraph is Subgraph.INDUCED:
                targets = sorted(set(case.schema.target_types))
                asked = torch.cat([owners[t][batch.nodes[t].node] for t in targets]).unique()
                traffic.nodes += batch.num_nodes * int((asked != rank).sum())
                traffic.picks += remote_edges(batch, away)
    return traffic


@fixed(30)
@given(st.data(), typed_cases(), random_seeds)
def test_types(data: st.DataObject, case: TypedCase, seed: int) -> None:
    check(data, case, seed, disjoint=False, subgraph=Subgraph.DIRECTIONAL)


@fixed(30)
@given(st.data(), typed_cases(), random_seeds)
def test_examples_and_induced_subgraphs(data: st.DataObject, case: TypedCase, seed: int) -> None:
    check(data, case, seed)


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("excluding", [False, True])
def test_every_rule(timed: bool, weighted: bool, excluding: bool) -> None:
    @fixed(15)
    @given(st.data(), typed_cases(timed, weighted), random_seeds)
    def run(data: st.DataObject, case: TypedCase, seed: int) -> None:
        check(data, case, seed, excluding=excluding)

    run()
