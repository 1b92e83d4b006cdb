"""Random typed graphs with times and weights, for the package and for the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.data import HOMOGENEOUS, Relation, Schema
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.sample import (
    LABOR,
    ExcludedPairs,
    Layout,
    MacrobatchSampler,
    MinibatchPlan,
    Replacement,
    SampledMinibatch,
    SamplingPlan,
    Seeds,
    Subgraph,
    TemporalStrategy,
)
from pyg_batchgnn.store import TimeOrder, TypedGraph, WeightSums
from tests.support.typed_reference import (
    Edge,
    ReferenceGraph,
    ReferenceMinibatch,
    ReferenceSampler,
    ReferenceSeed,
)

SCHEMAS = (
    HOMOGENEOUS,
    Schema(("paper",), (("paper", "cites", "paper"), ("paper", "rev_cites", "paper"))),
    Schema(("b", "a"), (("a", "to", "b"),)),
    Schema(
        ("author", "paper", "field", "lonely"),
        (
            ("author", "writes", "paper"),
            ("paper", "rev_writes", "author"),
            ("paper", "cites", "paper"),
            ("paper", "has_topic", "field"),
            ("field", "rev_has_topic", "paper"),
        ),
    ),
)


@dataclass(frozen=True)
class TypedCase:
    """A typed graph with what each relation has: times and weights by input edge id, or None."""

    schema: Schema
    num_nodes: dict[str, int]
    edge_index: dict[Relation, Tensor]
    time: dict[Relation, Tensor]
    weight: dict[Relation, Tensor]

    @property
    def timed(self) -> bool:
        return bool(self.time)

    def graph(self) -> TypedGraph:
        return TypedGraph.from_edge_indices(self.schema, self.num_nodes, self.edge_index)

    def sampler(
        self, plan: SamplingPlan, seed: int, layout: Layout = Layout.COO, threads: int | None = None
    ) -> MacrobatchSampler:
        graph = self.graph()
        times, weights = self.rules(graph.relations)
        return MacrobatchSampler(graph, plan, seed, threads, layout, times=times, weights=weights)

    def rules(self, relations: Sequence[InEdges]) -> tuple[list[TimeOrder | None], list[WeightSums | None]]:
        times: list[TimeOrder | None] = []
        weights: list[WeightSums | None] = []
        for relation, edges in zip(self.schema.relations, relations, strict=True):
            ids = edges.explicit_edge_ids().long()
            time, weight = self.time.get(relation), self.weight.get(relation)
            order = None if time is None else TimeOrder.of(edges, time[ids])
            times.append(order)
            by_place = ids if order is None else order.by_place(ids)
            weights.append(None if weight is None else WeightSums.of(edges, weight[by_place]))
        return times, weights

    def reference(self) -> ReferenceGraph:
        in_edges: dict[Relation, dict[int, list[Edge]]] = {}
        for relation in self.schema.relations:
            time, weight = self.time.get(relation), self.weight.get(relation)
            lists = in_edges.setdefault(relation, {})
            for number, (source, target) in enumerate(self.edge_index[relation].t().tolist()):
                edge = Edge(
                    source,
                    number,
                    None if time is None else int(time[number]),
                    None if weight is None else float(weight[number]),
                )
                lists.setdefault(target, []).append(edge)
        return ReferenceGraph(self.schema, self.num_nodes, in_edges)


@st.composite
def typed_cases(draw: st.DrawFn, timed: bool = False, weighted: bool = False) -> TypedCase:
    """Draws a typed graph of up to 30 nodes of each type, with hubs and parallel edges."""
    schema = draw(st.sampled_from(SCHEMAS))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    num_nodes = {name: draw(st.sampled_from([1, 2, 7, 30])) for name in schema.node_types}
    case = TypedCase(schema, num_nodes, {}, {}, {})
    for relation in schema.relations:
        count = draw(st.sampled_from([0, 1, 20, 150]))
        ends = [(random.random(count) ** 2 * num_nodes[name]).astype(np.int64) for name in relation[::2]]
        dtype = draw(st.sampled_from([torch.int32, torch.int64]))
        case.edge_index[relation] = torch.from_numpy(np.stack(ends)).to(dtype)
        if timed and draw(st.integers(0, 3)):
            case.time[relation] = torch.from_numpy(random.integers(-5, 15, count))
        if weighted and draw(st.integers(0, 3)):
            case.weight[relation] = _weights(random, count, draw(st.sampled_from(WEIGHTS)))
    if timed and not case.time:
        relation = schema.relations[0]
        case.time[relation] = torch.from_numpy(random.integers(-5, 15, case.edge_index[relation].size(1)))
    return case


WEIGHTS = ("float32", "zeros", "skewed")


def _weights(random: np.random.Generator, count: int, kind: str) -> Tensor:
    weight = torch.from_numpy(random.random(count))
    if kind == "zeros":
        return weight * torch.from_numpy(random.integers(0, 2, count))
    if kind == "skewed":
        return 10.0 ** torch.from_numpy(random.integers(-30, 30, count).astype(np.float64))
    return weight.float()


FANOUT = st.sampled_from([0, 1, 2, 5, 40, -1])
SHARE = st.sampled_from([0.1, 0.5, 0.3, 1.0])


@st.composite
def typed_plans(
    draw: st.DrawFn, schema: Schema, shares: bool = False, labor: bool = False, **rules: Any
) -> SamplingPlan:
    """Draws a plan; some relations have fanouts of their own. ``labor``: destinations may share the
    words of sources. ``rules``: fields that are given."""
    fanout = st.one_of(FANOUT, SHARE) if shares else FANOUT
    hops = draw(st.integers(1, 3))
    fanouts = st.lists(fanout, min_size=hops, max_size=hops).map(tuple)
    own = {relation: draw(fanouts) for relation in schema.relations if draw(st.booleans())}
    drawn: dict[str, Any] = {
        "fanouts": draw(fanouts),
        "edge_ids": draw(st.booleans()),
        "by_relation": own,
        "temporal": draw(st.sampled_from(TemporalStrategy)),
        "time_window": draw(st.sampled_from([None, None, 0, 3, 8])),
    }
    if labor and draw(st.booleans()):
        return SamplingPlan(**{**drawn, "labor": draw(st.sampled_from(LABOR)), **rules})
    drawn["replacement"] = draw(st.sampled_from(Replacement))
    drawn["disjoint"] = draw(st.booleans())
    drawn["subgraph"] = draw(st.sampled_from([Subgraph.DIRECTIONAL, Subgraph.DIRECTIONAL, Subgraph.INDUCED]))
    return SamplingPlan(**{**drawn, **rules})


@dataclass(frozen=True)
class DrawnSeeds:
    seeds: Seeds
    reference: list[ReferenceSeed]
    excluded: set[tuple[Relation, int | None, int, int]]


@st.composite
def typed_seeds(draw: st.DrawFn, case: TypedCase, excluding: bool = False) -> DrawnSeeds:
    """Draws seeds of some types in any order, with duplicates, times and shared examples."""
    names = draw(st.permutations(case.schema.node_types))[: draw(st.integers(0, case.schema.num_types))]
    nodes = {name: draw(st.lists(st.integers(0, case.num_nodes[name] - 1), max_size=6)) for name in names}
    count = sum(map(len, nodes.values()))
    shared = draw(st.booleans())
    example = [place % 3 if shared else place for place in range(count)]
    time_of = draw(st.lists(st.integers(-6, 16), min_size=count + 1, max_size=count + 1))
    time = [time_of[number] for number in example]
    flat = [(name, node) for name, ids in nodes.items() for node in ids]
    reference = [
        ReferenceSeed(name, node, number, at)
        for (name, node), number, at in zip(flat, example, time, strict=True)
    ]
    pairs = draw(_excluded(case)) if excluding else {}
    return DrawnSeeds(
        Seeds.of(
            case.schema,
            {name: torch.tensor(ids, dtype=torch.int64) for name, ids in nodes.items()},
            time=torch.tensor(time, dtype=torch.int64) if case.timed else None,
            example=torch.tensor(example, dtype=torch.int64) if shared else None,
            excluded=pairs,
        ),
        reference,
        {
            (relation, None if one.example is None else int(one.example[at]), source, int(one.pairs[1, at]))
            for relation, one in pairs.items()
            for at, source in enumerate((one.pairs[0] if one.edge is None else ~one.edge).tolist())
        },
    )


@st.composite
def _excluded(draw: st.DrawFn, case: TypedCase) -> dict[Relation, ExcludedPairs]:
    """Draws edges of the graph, and pairs that are none, to exclude, with parallel edges or not."""
    out = {}
    for relation in case.schema.relations:
        edges = case.edge_index[relation].long()
        ids = torch.arange(edges.size(1))[:: draw(st.sampled_from([1, 2, 5]))]
        kept = edges[:, ids]
        other = torch.zeros(2, 1, dtype=torch.int64)
        pairs = torch.cat([kept, other], dim=1)
        example = torch.arange(pairs.size(1)) % 4 if draw(st.booleans()) else None
        if draw(st.booleans()):
            edge = torch.cat([ids, torch.tensor([0])]) if draw(st.booleans()) else None
            out[relation] = ExcludedPairs(pairs, example, edge)
    return out


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


def check_typed(
    case: TypedCase,
    plan: SamplingPlan,
    seed: int,
    epoch: int,
    drawn: Sequence[DrawnSeeds],
    threads: int | None = None,
) -> None:
    disjoint = plan.disjoint or case.timed
    wanted = [
        ReferenceSampler(case.reference(), plan, seed, epoch, disjoint, one.excluded).sample(one.reference)
        for one in drawn
    ]
    for layout in Layout:
        found = case.sampler(plan, seed, layout, threads).sample([one.seeds for one in drawn], epoch)
        for batch, right in zip(found, wanted, strict=True):
            assert_equals_typed(batch, right, plan, disjoint)


def assert_equals_typed(
    batch: SampledMinibatch, right: ReferenceMinibatch, plan: MinibatchPlan, disjoint: bool
) -> None:
    for number, name in enumerate(batch.schema.node_types):
        nodes = batch.nodes[number]
        assert nodes.node.tolist() == [node for _, node in right.node[name]]
        assert list(nodes.nodes_per_hop) == right.nodes_per_hop[name]
        assert (nodes.example is not None) == disjoint
        if nodes.example is not None:
            assert nodes.example.tolist() == [example for example, _ in right.node[name]]
    for number, relation in enumerate(batch.schema.relations):
        edges = batch.edges[number]
        assert edges.indptr.tolist() == [0, *right.ends[relation]]
        assert edges.indices.tolist() == right.source[relation]
        assert list(edges.edges_per_hop) == right.edges_per_hop[relation]
        assert (edges.edge is None) == (not plan.edge_ids)
        if edges.edge is not None:
            assert edges.edge.tolist() == right.edge[relation]
        rows = torch.arange(edges.indptr.numel() - 1).repeat_interleave(edges.indptr.diff())
        assert torch.equal(edges.edge_index, torch.stack([edges.indices.long(), rows]))
    assert plan.subgraph is Subgraph.INDUCED or batch.num_edges == sum(map(sum, right.edges_per_hop.values()))
