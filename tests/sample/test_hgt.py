"""Sampling by budgets: equal to the reference bit for bit, and with the right laws."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from pyg_batchgnn.data import HOMOGENEOUS, Relation, Schema
from pyg_batchgnn.sample import (
    NEIGHBOR_CAP,
    ExcludedPairs,
    HGTPlan,
    HGTSampler,
    Layout,
    Replacement,
    SampledMinibatch,
    Seeds,
)
from pyg_batchgnn.store import CscGraph, TypedGraph
from tests.support.chi_square import Ints, assert_uniform, p_of_cells, rejected
from tests.support.reference_sampler import fold, fold_all, reference_picks, words
from tests.support.sampling_cases import epochs, fixed, random_seeds
from tests.support.typed_graphs import TypedCase, assert_equals_typed, typed_cases, typed_seeds
from tests.support.typed_reference import (
    Allowed,
    Edge,
    ReferenceGraph,
    ReferenceMinibatch,
    ReferenceSeed,
    names_key,
    seeds_key,
    weighted_picks,
)

HGT = int.from_bytes(b"hgt", "little")


@dataclass
class BudgetReference:
    graph: ReferenceGraph
    plan: HGTPlan
    seed: int
    epoch: int

    def sample(self, seeds: Sequence[ReferenceSeed]) -> ReferenceMinibatch:
        """Samples one minibatch; seeds of a type keep their order."""
        schema, samples = self.graph.schema, dict(self.plan.samples)
        key = fold_all([self.seed, self.epoch, seeds_key(schema, seeds), HGT])
        node = {t: [one.node for one in seeds if one.type == t] for t in schema.node_types}
        latest = {t: list(dict.fromkeys(nodes)) for t, nodes in node.items()}  # each node once
        per_hop = {t: [len(nodes)] for t, nodes in node.items()}
        budget: dict[str, dict[int, float]] = {t: {} for t in schema.node_types}
        for hop in range(self.plan.num_hops):
            for relation in sorted(schema.relations, key=names_key):
                source, _, target = relation
                for w in latest[target]:
                    edges = self._neighbours(key, relation, w)
                    for edge in edges:
                        if edge.source not in node[source]:
                            held = budget[source].get(edge.source, 0.0)
                            budget[source][edge.source] = held + 1.0 / len(edges)
            for t in schema.node_types:
                latest[t] = self._drawn(key, hop, t, samples[t][hop], budget[t])
                node[t] += latest[t]
                per_hop[t].append(len(latest[t]))
                budget[t] = {v: value for v, value in budget[t].items() if v not in latest[t]}
        return self._with_edges(key, node, per_hop)

    def _neighbours(self, key: int, relation: Relation, node: int) -> list[Edge]:
        edges = self.graph.in_edges[relation].get(node, [])
        relation_key = self._named(fold(key, 0), relation)
        cap = -1 if self.plan.neighbor_cap is None else self.plan.neighbor_cap
        picks = reference_picks(len(edges), cap, Replacement.WITHOUT, words(fold(relation_key, node)))
        return [edges[place] for place in sorted(picks)]

    def _drawn(self, key: int, hop: int, name: str, wanted: int, budget: dict[int, float]) -> list[int]:
        """The candidates that are sampled, in the order of the draws."""
        if wanted == -1 or len(budget) <= wanted:
            return list(budget)
        draw_key = self._named(fold(fold(key, 1), hop), (name,))
        offered = [Edge(v, 0, weight=value * value) for v, value in budget.items()]
        drawn = weighted_picks(Allowed(offered, None), wanted, Replacement.WITHOUT, words(draw_key))
        return [one.source for one in drawn]

    def _named(self, key: int, names: Sequence[str]) -> int:
        return key if self.graph.schema.is_plain else fold(key, names_key(names))

    def _with_edges(
        self, key: int, node: dict[str, list[int]], per_hop: dict[str, list[int]]
    ) -> ReferenceMinibatch:
        relations = self.graph.schema.relations
        out = ReferenceMinibatch(
            {t: [(0, v) for v in nodes] for t, nodes in node.items()},
            per_hop,
            *({r: list[int]() for r in relations} for _ in range(4)),
        )
        for relation in relations:
            source, _, target = relation
            for w in node[target]:
                for edge in self._neighbours(key, relation, w):
                    if edge.source in node[source]:
                        out.source[relation].append(node[source].index(edge.source))
                        out.edge[relation].append(edge.number)
                out.ends[relation].append(len(out.source[relation]))
        return out


def plan_of(
    samples: Mapping[str, Sequence[int]], cap: int | None = NEIGHBOR_CAP, edge_ids: bool = True
) -> HGTPlan:
    return HGTPlan(tuple((name, tuple(hops)) for name, hops in samples.items()), cap, edge_ids)


HUBS = 4000
STAR = Schema(("leaf", "hub"), (("leaf", "to", "hub"),))
SAMPLES = st.sampled_from([0, 1, 2, 5, 45, -1])


@st.composite
def plans(draw: st.DrawFn, schema: Schema) -> HGTPlan:
    hops = draw(st.integers(1, 3))
    by_type = {name: draw(st.lists(SAMPLES, min_size=hops, max_size=hops)) for name in schema.node_types}
    cap = draw(st.sampled_from([1, 2, 5, 50, None]))
    return plan_of(by_type, cap, draw(st.booleans()))


@fixed(120)
@given(st.data(), typed_cases(), random_seeds, epochs)
def test_reference(data: st.DataObject, case: TypedCase, seed: int, epoch: int) -> None:
    plan = data.draw(plans(case.schema))
    drawn = data.draw(st.lists(typed_seeds(case), max_size=3))
    reference = BudgetReference(case.reference(), plan, seed, epoch)
    wanted = [reference.sample(one.reference) for one in drawn]
    for layout in Layout:
        sampler = HGTSampler(case.graph(), plan, seed, data.draw(st.sampled_from([1, 3])), layout)
        found = sampler.sample([one.seeds for one in drawn], epoch)
        for batch, right in zip(found, wanted, strict=True):
            assert_equals_typed(batch, right, plan, disjoint=False)


@pytest.mark.parametrize("wanted", [41, 100, 299])
def test_reference_of_many_draws(wanted: int) -> None:
    """Earlier draws are remembered in a table, and most candidates are taken."""
    random = torch.Generator().manual_seed(wanted)
    relation = STAR.relations[0]
    ends = [torch.randint(size, (2000,), generator=random) for size in (300, 7)]
    case = TypedCase(STAR, {"leaf": 300, "hub": 7}, {relation: torch.stack(ends)}, {}, {})
    plan = plan_of({"leaf": [wanted], "hub": [0]}, None)
    seeds = [ReferenceSeed("hub", hub) for hub in range(7)]
    right = BudgetReference(case.reference(), plan, 1, 2).sample(seeds)
    (found,) = HGTSampler(case.graph(), plan, 1).sample([Seeds.of(STAR, {"hub": torch.arange(7)})], 2)
    assert found.nodes_of("leaf").node.numel() == wanted
    assert_equals_typed(found, right, plan, disjoint=False)


@fixed(30)
@given(st.data(), typed_cases(), random_seeds)
def test_no_order_of_types_and_relations_matters(data: st.DataObject, case: TypedCase, seed: int) -> None:
    """Budgets are summed in the order of digests, so that not even local ids change."""
    schema, plan = case.schema, data.draw(plans(case.schema))
    other = Schema(
        tuple(data.draw(st.permutations(schema.node_types))),
        tuple(data.draw(st.permutations(schema.relations))),
    )
    counts = {name: case.num_nodes[name] for name in other.node_types}
    seeds = {name: torch.arange(count)[:2] for name, count in case.num_nodes.items()}
    edges = {relation: case.edge_index[relation] for relation in other.relations}
    graphs = case.graph(), TypedGraph.from_edge_indices(other, counts, edges)
    one, same = (
        HGTSampler(graph, plan, seed).sample([Seeds.of(graph.schema, seeds)], 3)[0] for graph in graphs
    )
    for name in schema.node_types:
        assert torch.equal(one.nodes_of(name).node, same.nodes_of(name).node)
    for relation in schema.relations:
        assert torch.equal(one.edges_of(relation).edge_index, same.edges_of(relation).edge_index)


def stars(sources: Sequence[int]) -> TypedGraph:
    leaves = torch.tensor(sources)
    edge_index = torch.stack([leaves.repeat(HUBS), torch.arange(HUBS).repeat_interleave(leaves.numel())])
    counts = {"leaf": max(sources) + 1, "hub": HUBS}
    return TypedGraph.from_edge_indices(STAR, counts, {STAR.relations[0]: edge_index})


def around_hubs(graph: TypedGraph, leaves: int, cap: int | None, epochs: int) -> list[SampledMinibatch]:
    plan = plan_of({"leaf": [leaves], "hub": [0]}, cap)
    seeds = [Seeds.of(STAR, {"hub": torch.tensor([hub])}) for hub in range(HUBS)]
    sampler = HGTSampler(graph, plan, seed=5)
    return [one for epoch in range(epochs) for one in sampler.sample(seeds, epoch)]


def found_leaves(batches: Sequence[SampledMinibatch]) -> Ints:
    return np.stack([one.nodes_of("leaf").node.numpy() for one in batches])


def chances(weights: Sequence[float], order: Sequence[int]) -> float:
    chance, left = 1.0, sum(weights)
    for place in order:
        chance *= weights[place] / left
        left -= weights[place]
    return chance


def test_draws_are_proportional_to_squared_budgets() -> None:
    """A leaf with m parallel edges to the only seed has a budget of m shares."""
    found = found_leaves(around_hubs(stars([0, 1, 1, 2, 2, 2, 3]), 2, None, epochs=3))
    orders = list(itertools.permutations(range(4), 2))
    counts = np.array([np.sum((found == order).all(axis=1)) for order in orders])
    squared, plain = (
        p_of_cells(counts, np.array([chances([m**power for m in (1, 2, 3, 1)], order) for order in orders]))
        for power in (2, 1)
    )
    assert_uniform(squared)
    assert rejected(plain)


def test_capped_neighbours_are_uniform() -> None:
    batches = around_hubs(stars(range(9)), -1, cap=3, epochs=2)
    found = np.sort(found_leaves(batches), axis=1)
    subsets = list(itertools.combinations(range(9), 3))
    counts = np.array([np.sum((found == subset).all(axis=1)) for subset in subsets])
    assert_uniform(p_of_cells(counts, np.full(len(subsets), 1 / len(subsets))))


def test_the_default_cap_is_pygs() -> None:
    (one,) = around_hubs(stars(range(80)), -1, plan_of({"leaf": [1]}).neighbor_cap, epochs=1)[:1]
    assert one.nodes_of("leaf").node.numel() == 50


@pytest.mark.parametrize(
    ("samples", "cap", "error", "words"),
    [
        ([], 50, ValueError, "at least one hop"),
        ([1.5], 50, TypeError, "must be integers"),
        ([-2], 50, ValueError, "from -1"),
        ("12", 50, TypeError, "a list with one number per hop"),
        ({"leaf": [1]}, 50, ValueError, "lacks the node type 'hub'"),
        ({"leaf": [1], "hub": [1], "x": [1]}, 50, ValueError, "names the node type 'x'"),
        ({"leaf": [1], "hub": [1, 1]}, 50, ValueError, "numbers of hops"),
        ([1], 0, ValueError, "neighbor_cap must be from 1"),
        ([1], 2.0, TypeError, "neighbor_cap must be an integer"),
    ],
)
def test_plans_that_cannot_be(samples: Any, cap: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        HGTPlan.from_pyg(samples, STAR.node_types, cap)


def test_lists_are_for_every_type() -> None:
    by_type: Mapping[str, list[int]] = {"leaf": [3, 4], "hub": [3, 4]}
    assert HGTPlan.from_pyg([3, 4], STAR.node_types) == HGTPlan.from_pyg(by_type, STAR.node_types)


def test_plans_of_other_graphs_and_excluded_pairs_are_refused() -> None:
    graph = CscGraph.from_edge_index(torch.tensor([[0], [1]]), num_nodes=2)
    with pytest.raises(ValueError, match="the plan is for the node types"):
        HGTSampler(graph, plan_of({"paper": [1]}))
    seeds = Seeds.of(
        HOMOGENEOUS,
        {"node": torch.tensor([1])},
        excluded={HOMOGENEOUS.relations[0]: ExcludedPairs(torch.tensor([[0], [1]]))},
    )
    with pytest.raises(ValueError, match="does not exclude pairs"):
        HGTSampler(graph, plan_of({"node": [1]})).sample([seeds], 0)
