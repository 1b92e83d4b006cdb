"""Seeds of links over ranks, negatives included, are those of one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from torch import Tensor
from torch_geometric.sampler import NegativeSampling

from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.data import HOMOGENEOUS, Group, Relation
from pyg_batchgnn.partition import Part, move
from pyg_batchgnn.sample import Links, LinkSeeder, LinkStart, RankFinder, RankPlanner, negative_plan
from pyg_batchgnn.store import CscGraph, TimeLevel, Times, first_times, first_times_of_part
from tests.support.loader_cases import equal
from tests.support.reference_partition import internal_ids_by_type, typed_parts
from tests.support.relayed import owners_of
from tests.support.thread_ranks import run_threads
from tests.support.tiers import examples
from tests.support.typed_graphs import TypedCase, typed_cases

SEED, EPOCH = 5, 3


@dataclass(frozen=True)
class LinkCase:
    """A graph whose nodes ranks own, and links of some relations with negatives.

    ``minibatches``: the links of each. ``avoids``: negatives must not be edges. ``disjoint``: every
    link is an example.
    """

    case: TypedCase
    owners: Sequence[Tensor]
    ranks: int
    minibatches: Sequence[Sequence[Links]]
    sampling: Mapping[Relation, NegativeSampling]
    avoids: bool
    times: Times | None
    disjoint: bool

    def start_local(self, minibatch: Sequence[Links]) -> LinkStart:
        graph = self.case.graph()
        first = None if self.times is None else first_times(self.times, graph)
        plans = {
            relation: negative_plan(one, relation, graph, first, self.avoids)
            for relation, one in self.sampling.items()
        }
        return LinkSeeder(self.case.schema, plans, self.disjoint).start(minibatch, SEED, EPOCH)

    def start_rank(self, comm: Communicator, part: Part) -> list[LinkStart]:
        first = None
        if self.times is not None:
            first = first_times_of_part(part, comm, own_times(part, self.times))
        planner = RankPlanner(part, comm, first)
        plans = {
            relation: planner.plan(one, relation, self.link_times(relation), self.avoids)
            for relation, one in self.sampling.items()
        }
        seeder = LinkSeeder(
            self.case.schema,
            {relation: one.plan for relation, one in plans.items()},
            self.disjoint,
            finder=RankFinder(part, comm, plans),
        )
        comm.counters.reset()
        started = seeder.start_all(self.minibatches[comm.rank :: comm.size], SEED, EPOCH, 7)
        lookups = comm.counters.snapshot()[MessageKind.LOOKUP]
        expected = 0 if comm.size == 1 else 4 if self.avoids and self.sampling else 2
        assert lookups.rounds == expected
        return started

    def link_times(self, relation: Relation) -> Tensor | None:
        times = [
            one.time for links in self.minibatches for one in links if one.relation == relation and one.count
        ]
        found = [one for one in times if one is not None]
        return torch.cat([torch.empty(0, dtype=torch.int64), *found]) if self.times is not None else None


def own_times(part: Part, times: Times) -> Times:
    schema, own = part.schema, {}
    for number, group in enumerate(schema.node_groups):
        if group in times.by_group:
            own[group] = times.by_group[group][part.original_ids(number)]
    for edges, group in zip(part.relations, schema.edge_groups, strict=True):
        if group in times.by_group:
            own[group] = times.by_group[group][edges.explicit_edge_ids().long()]
    return Times(times.name, times.level, own)


@st.composite
def link_cases(draw: st.DrawFn) -> LinkCase:
    """Draws links of one or two relations, with any negatives that one process allows."""
    level = draw(st.sampled_from([None, *TimeLevel]))
    case = draw(typed_cases(timed=level in (TimeLevel.EDGE, TimeLevel.BOTH)))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ranks = draw(st.integers(1, 4))
    relations = draw(st.lists(st.sampled_from(case.schema.relations), min_size=1, max_size=2, unique=True))
    sampling = {
        relation: NegativeSampling(
            mode, amount, *(_weight(draw, random, case.num_nodes[name]) for name in relation[::2])
        )
        for relation in relations
        for mode, amount in [
            draw(st.sampled_from([("binary", 1), ("binary", 2.5), ("triplet", 1), ("triplet", 3)]))
        ]
        if draw(st.integers(0, 3))
    }
    minibatches = [
        [_links(random, case, relation, count, level is not None) for relation in relations]
        for count in draw(st.lists(st.integers(0, 6), max_size=6))
    ]
    return LinkCase(
        case,
        draw(owners_of(case, ranks)),
        ranks,
        minibatches,
        sampling,
        draw(st.booleans()),
        None if level is None else _times(random, case, level),
        level is not None or draw(st.booleans()),
    )


def _weight(draw: Any, random: np.random.Generator, count: int) -> Tensor | None:
    if draw(st.booleans()):
        return None
    return torch.from_numpy(random.random(count) * random.integers(0, 3, count))


def _links(
    random: np.random.Generator, case: TypedCase, relation: Relation, count: int, timed: bool
) -> Links:
    source, target = (
        torch.from_numpy(random.integers(0, case.num_nodes[name], count)) for name in relation[::2]
    )
    time = torch.from_numpy(random.integers(-3, 15, count)) if timed else None
    return Links(relation, source, target, torch.arange(count), None, time)


def _times(random: np.random.Generator, case: TypedCase, level: TimeLevel) -> Times:
    of_edges = {
        case.schema.edge_groups[case.schema.relation_number(relation)]: time
        for relation, time in case.time.items()
    }
    if level is TimeLevel.EDGE:
        return Times("time", level, of_edges)
    groups = zip(case.schema.node_groups, case.num_nodes.values(), strict=True)
    by_group: dict[Group, Tensor] = {
        group: torch.from_numpy(random.integers(-5, 9, count)) for group, count in groups
    }
    if len(by_group) > 1 and random.integers(2):
        del by_group[case.schema.node_groups[0]]
    return Times("time", level, by_group | (of_edges if level is TimeLevel.BOTH else {}))


@examples(8, deadline=None)
@given(links=link_cases())
def test_seeds_of_links_are_those_of_one_process(links: LinkCase) -> None:
    parts = typed_parts(links.case.graph(), links.owners, links.ranks)
    try:
        wanted = [links.start_local(one) for one in links.minibatches]
    except ValueError as error:  # nothing is allowed, or everything exists
        assert "has no negative" in str(error)
        with pytest.raises(ValueError, match=r"link \(\d+, \d+\) has no negative"):
            run_threads(lambda comm: links.start_rank(comm, parts[comm.rank]), links.ranks)
        return
    made = run_threads(lambda comm: links.start_rank(comm, parts[comm.rank]), links.ranks)
    internal = internal_ids_by_type(links.owners, parts[0].book)
    for rank, starts in enumerate(made):
        for start, expected in zip(starts, wanted[rank :: links.ranks], strict=True):
            assert equal(start.links, expected.links) and equal(start.seeds, expected.seeds)
            assert start.late_negatives == expected.late_negatives
            ids = [own[node] for own, node in zip(internal, expected.seeds.nodes, strict=True)]
            assert start.internal is not None and torch.equal(start.internal, torch.cat(ids))


def test_pairs_of_other_ranks_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank answers for a target of most nodes, and all ranks know the pairs of both."""
    nodes, hubs = 1000, torch.tensor([0, 500])
    source = torch.arange(1, 900)
    edge_index = torch.stack([source.repeat(2), hubs.repeat_interleave(len(source))])
    graph = CscGraph.from_edge_index(edge_index, nodes).typed
    parts = typed_parts(graph, [torch.arange(nodes) % 2], 2)
    gathered: list[int] = []
    gather = Communicator.all_gather

    def counted(comm: Communicator, tensor: Tensor, *given: Any) -> Any:
        gathered.append(len(tensor))
        return gather(comm, tensor, *given)

    def existing(comm: Communicator) -> tuple[Tensor, Tensor]:
        planner = RankPlanner(parts[comm.rank], comm, None)
        plan = planner.plan(NegativeSampling("binary", 1), HOMOGENEOUS.relations[0], None, True)
        found = plan.plan.existing
        assert found is not None
        return found.code, found.known

    monkeypatch.setattr(move, "ROUND_BYTES", 1)  # then a piece has 256 rows
    monkeypatch.setattr(Communicator, "all_gather", counted)
    wanted = (hubs.view(-1, 1) * nodes + source).view(-1).tolist()
    for rank, (code, known) in enumerate(run_threads(existing, 2)):
        assert code.tolist() == wanted
        assert known.tolist() == sorted({*range(500 * rank, 500 * rank + 500), *hubs.tolist()})
    assert max(gathered) == 256
