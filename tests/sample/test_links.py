"""Seeds and local ids of links are those that PyG's `edge_sample` makes of the same negatives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.sampler import EdgeSamplerInput, HeteroSamplerOutput, NegativeSampling, SamplerOutput
from torch_geometric.sampler.neighbor_sampler import edge_sample

from pyg_batchgnn.data import HOMOGENEOUS, Schema
from pyg_batchgnn.sample import (
    Links,
    LinkSeeder,
    NegativeMode,
    NegativePlan,
    NodePool,
    SeedEdges,
    links_key,
    negative_key,
)
from pyg_batchgnn.sample.negatives import NegativeDraw
from tests.support.reference_sampler import fold, reference_key
from tests.support.typed_reference import names_key

SEED, EPOCH = 11, 3
BUYS, KNOWS = ("user", "buys", "item"), ("user", "knows", "user")
TYPED = Schema(("item", "user"), (BUYS, KNOWS, ("item", "rev_buys", "user")))
SIZES = {"item": 9, "user": 6, "node": 8}


def links_of(relation: tuple[str, str, str], count: int, *, labelled: bool, timed: bool) -> Links:
    generator = torch.Generator().manual_seed(count)
    source = torch.randint(SIZES[relation[0]], (count,), generator=generator)
    target = torch.randint(SIZES[relation[2]], (count,), generator=generator)
    label = torch.randint(1, 5, (count,), generator=generator) if labelled else None
    time = torch.randint(100, (count,), generator=generator) if timed else None
    return Links(relation, source, target, torch.arange(count) + 7, label, time)


def plan_of(relation: tuple[str, str, str], mode: NegativeMode, amount: float) -> NegativePlan:
    return NegativePlan(mode, amount, NodePool.of(SIZES[relation[0]]), NodePool.of(SIZES[relation[2]]))


class Given(NegativeSampling):
    """PyG's negative sampling, which hands out negatives that were drawn before."""

    def __init__(self, plan: NegativePlan, source: Tensor, target: Tensor) -> None:
        super().__init__(plan.mode.value, plan.amount)
        self.drawn = {"src": source, "dst": target}

    def sample(self, num_samples: int, endpoint: str, num_nodes: int | None = None) -> Tensor:
        assert self.drawn[endpoint].numel() == num_samples
        return self.drawn[endpoint]


def pyg_start(
    schema: Schema, links: Links, plan: NegativePlan | None, disjoint: bool
) -> tuple[Any, Any, Any]:
    is_typed = schema is not HOMOGENEOUS
    seen: list[Any] = []

    def sample(seeds: Any, time: Any) -> Any:
        seen.extend([seeds, time])
        if not is_typed:
            return SamplerOutput(seeds, seeds, seeds, None, batch=torch.arange(seeds.numel()))
        batch = {name: torch.arange(node.numel()) for name, node in seeds.items()}
        return HeteroSamplerOutput(seeds, {}, {}, None, batch=batch)

    given = None
    if plan is not None:
        relation = names_key(links.relation) if is_typed else None
        key = negative_key(SEED, EPOCH, links_key(schema, [links]), relation)
        drawn = NegativeDraw(plan, links.source, links.target, links.time, key).draw()
        target = drawn.target
        if plan.mode is NegativeMode.TRIPLET and disjoint:
            target = target.view(links.count, -1).t().reshape(-1)
        given = Given(plan, drawn.source, target)
    inputs = EdgeSamplerInput(
        links.input_id,
        links.source,
        links.target,
        links.label,
        links.time,
        links.relation if is_typed else None,
    )
    out = edge_sample(inputs, sample, SIZES if is_typed else SIZES["node"], disjoint, neg_sampling=given)
    return seen[0], seen[1], out.metadata


PLANS = [None, ("binary", 1), ("binary", 0.5), ("binary", 2.5), ("triplet", 1), ("triplet", 3)]


@pytest.mark.parametrize("relation", [("node", "to", "node"), BUYS, KNOWS])
@pytest.mark.parametrize("negatives", PLANS)
@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("timed", [False, True])
def test_seeds_are_those_of_pyg(
    relation: tuple[str, str, str], negatives: tuple[str, float] | None, disjoint: bool, timed: bool
) -> None:
    schema = HOMOGENEOUS if relation[0] == "node" else TYPED
    mode = None if negatives is None else NegativeMode(negatives[0])
    plan = None if negatives is None else plan_of(relation, mode, negatives[1])
    links = links_of(relation, 8, labelled=mode is not NegativeMode.TRIPLET, timed=timed and disjoint)
    seeder = LinkSeeder(schema, {} if plan is None else {relation: plan}, disjoint)
    start = seeder.start([links], SEED, EPOCH)
    nodes, time, metadata = pyg_start(schema, links, plan, disjoint)
    if schema is HOMOGENEOUS:
        nodes = {"node": nodes}
    elif time is not None:
        time = torch.cat(list(time.values()))
    seeds = {schema.node_types[number]: start.seeds.nodes[number].tolist() for number in start.seeds.types}
    assert seeds == {name: node.tolist() for name, node in nodes.items()}
    assert start.seeds.key == links_key(schema, [links])
    (made,) = start.links
    for ours, theirs in zip(made.metadata, metadata, strict=True):
        assert (ours is None and theirs is None) or torch.equal(ours, theirs)
    assert (time is None) == (start.seeds.time is None) == (not (timed and disjoint))
    if time is not None:
        assert torch.equal(start.seeds.time, time)


@pytest.mark.parametrize("relation", [BUYS, KNOWS])
@pytest.mark.parametrize("mode", NegativeMode)
def test_both_ends_of_a_link_and_its_negatives_are_one_example(
    relation: tuple[str, str, str], mode: NegativeMode
) -> None:
    # PyG puts them into different ones if the number of negatives is no multiple of the links'.
    links = links_of(relation, 8, labelled=False, timed=False)
    plan = plan_of(relation, mode, 0.5 if mode is NegativeMode.BINARY else 3)
    start = LinkSeeder(TYPED, {relation: plan}, is_disjoint=True).start([links], SEED, EPOCH)
    first = [*range(8), *range(4)] if mode is NegativeMode.BINARY else [*range(8)]
    second = first if mode is NegativeMode.BINARY else [*range(8)] * 4
    assert start.seeds.example.tolist() == first + second


def test_several_relations_share_seeds() -> None:
    buys = links_of(BUYS, 5, labelled=True, timed=False)
    knows = links_of(KNOWS, 4, labelled=False, timed=False)
    plans = {KNOWS: plan_of(KNOWS, NegativeMode.TRIPLET, 2), BUYS: plan_of(BUYS, NegativeMode.BINARY, 1)}
    start = LinkSeeder(TYPED, plans).start([buys, knows], SEED, EPOCH)
    users, items = start.seeds.nodes[1], start.seeds.nodes[0]
    assert start.seeds.types == (1, 0)  # in order of the relations' ends
    first, second = start.links
    assert torch.equal(users[first.index[0, :5]], buys.source)
    assert torch.equal(items[first.index[1, :5]], buys.target)
    assert first.label.tolist() == [*buys.label.tolist(), *[0] * 5]
    assert torch.equal(users[second.source], knows.source)
    assert torch.equal(users[second.target], knows.target)
    assert second.negative.shape == (4, 2)
    everyone = torch.cat([first.index[0], second.source, second.target, second.negative.view(-1)])
    assert everyone.unique().tolist() == list(range(users.numel()))  # and no seed but these
    # Each relation's negatives are those that it would have under the same key without the other.
    key = negative_key(SEED, EPOCH, start.seeds.key, names_key(KNOWS))
    alone = NegativeDraw(plans[KNOWS], knows.source, knows.target, None, key).draw()
    assert torch.equal(users[second.negative].view(-1), alone.target)
    # In disjoint sampling the examples of one relation follow those of the other.
    apart = LinkSeeder(TYPED, {}, is_disjoint=True).start([buys, knows], SEED, EPOCH)
    assert apart.seeds.types == (1, 0)
    assert apart.seeds.example.tolist() == [*range(5), *range(5, 9), *range(5, 9), *range(5)]


def test_keys_of_links() -> None:
    buys, knows = (links_of(one, 3, labelled=False, timed=False) for one in (BUYS, KNOWS))
    flat = [torch.stack([one.source, one.target], 1).view(-1).tolist() for one in (buys, knows)]
    plain = links_of(("node", "to", "node"), 3, labelled=False, timed=False)
    ends = torch.stack([plain.source, plain.target], 1).view(-1).tolist()
    assert links_key(HOMOGENEOUS, [plain]) == reference_key(ends)
    expected = 0
    for relation, one in ((BUYS, flat[0]), (KNOWS, flat[1])):
        expected = fold(fold(expected, names_key(relation)), reference_key(one))
    assert links_key(TYPED, [knows, buys]) == links_key(TYPED, [buys, knows]) == expected
    other = Schema(TYPED.node_types[::-1], TYPED.relations[::-1])
    assert links_key(other, [buys, knows]) == expected


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("mode", [None, *NegativeMode])
def test_no_links(mode: NegativeMode | None, disjoint: bool) -> None:
    links = links_of(BUYS, 0, labelled=False, timed=False)
    plans = {} if mode is None else {BUYS: plan_of(BUYS, mode, 2)}
    start = LinkSeeder(TYPED, plans, disjoint).start([links], SEED, EPOCH)
    assert start.seeds.count == 0
    shapes = [None if part is None else list(part.shape) for part in start.links[0].metadata]
    wanted = {
        NegativeMode.BINARY: [[0], [2, 0], [0], None],
        NegativeMode.TRIPLET: [[0], [0], [0], [0, 2], None],
    }
    assert shapes == ([[0], [2, 0], None, None] if mode is None else wanted[mode])


def test_a_graph_of_one_relation_holds_reverses_itself() -> None:
    name = ("node", "to", "node")
    links = links_of(name, 2, labelled=False, timed=False)
    seeder = LinkSeeder(HOMOGENEOUS, {}, False, SeedEdges.both_ways(HOMOGENEOUS, [name]))
    pairs = seeder.start([links], SEED, EPOCH).seeds.excluded[0].pairs
    ends = torch.stack([links.source, links.target])
    assert torch.equal(pairs, torch.cat([ends, ends.flip(0)], dim=1))


@pytest.mark.parametrize(
    ("reverse", "message"),
    [
        (None, r"finds no relation \('user', 'rev_knows', 'user'\)"),
        ({BUYS: KNOWS}, r"names no reverse of \('user', 'knows', 'user'\)"),
        ({KNOWS: BUYS}, r"no relation of the graph from 'user' to 'user'"),
        ({KNOWS: ("user", "x", "user")}, r"no relation of the graph from 'user' to 'user'"),
    ],
)
def test_reverses_that_are_not_known(reverse: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SeedEdges.both_ways(TYPED, [KNOWS], reverse)
