"""Sampling over parts that are all here, without processes, and what it sends by the formulas."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import hypothesis.strategies as st
import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops import Relay, RelayAnswers, RelayQuestions
from pyg_batchgnn.partition import Part, PartitionBook
from pyg_batchgnn.sample import Layout, RelayPart, SampledMinibatch, SamplingPlan, Seeds
from tests.support.reference_partition import internal_ids_by_type, typed_parts
from tests.support.typed_graphs import TypedCase

EPOCH = 3


@st.composite
def owners_of(draw: st.DrawFn, case: TypedCase, parts: int) -> list[Tensor]:
    """Draws the part of every node, by type; parts may own nothing of a type, or nothing at all."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    owners = []
    for name in case.schema.node_types:
        allowed = draw(st.lists(st.integers(0, parts - 1), min_size=1, max_size=parts, unique=True))
        owners.append(torch.from_numpy(random.choice(allowed, case.num_nodes[name])))
    return owners


@dataclass
class Traffic:
    """The nodes that parts asked of others, and the picks that were answered."""

    nodes: int = 0
    picks: int = 0


class RelayedSampler:
    def __init__(
        self, case: TypedCase, owners: Sequence[Tensor], parts: int, plan: SamplingPlan, wide: bool = False
    ) -> None:
        self.parts = typed_parts(case.graph(), owners, parts)
        if wide:
            self.parts = [_wide(part) for part in self.parts]
        self.ids = internal_ids_by_type(owners, self.parts[0].book)
        self.case, self.plan = case, plan
        self.traffic = Traffic()

    def sample(
        self, seeds: Sequence[Sequence[Seeds]], seed: int, layout: Layout, excluding: bool
    ) -> list[list[SampledMinibatch]]:
        self.traffic = Traffic()
        node = torch.cat([part.node for part in self.parts])
        sides = []
        for part in self.parts:
            ids = [node[one.indices].to(one.indices.dtype) for one in part.relations]
            rules = self.case.rules(part.relations)
            source_ids = ids if self.plan.labor else ()
            side = RelayPart(part, self.plan, layout, *rules, excluding=excluding, source_ids=source_ids)
            sides.append(side)
        relays = []
        for side, own in zip(sides, seeds, strict=True):
            relays.append(side.begin([self._internal(one) for one in own], seed, EPOCH))
        for hop in range(sides[0].relays):
            with ops.thread_limit(2):
                self._hop(sides, relays, hop)
        return [
            [self._original(one) for one in side.finish(relay, own, seed, EPOCH)]
            for side, relay, own in zip(sides, relays, seeds, strict=True)
        ]

    def _internal(self, seeds: Seeds) -> Seeds:
        nodes = tuple(ids[nodes] for ids, nodes in zip(self.ids, seeds.nodes, strict=True))
        schema, excluded = self.case.schema, {}
        for number, one in seeds.excluded.items():
            types = schema.source_types[number], schema.target_types[number]
            ends = [self.ids[kind][end] for kind, end in zip(types, one.pairs, strict=True)]
            excluded[number] = dataclasses.replace(one, pairs=torch.stack(ends))
        return dataclasses.replace(seeds, nodes=nodes, excluded=excluded)

    def _original(self, batch: SampledMinibatch) -> SampledMinibatch:
        node = torch.cat([part.node for part in self.parts])
        return batch.with_ids([node[one.node] for one in batch.nodes])

    def _hop(self, sides: Sequence[RelayPart], relays: Sequence[Relay], hop: int) -> None:
        asked = [relay.ask() for relay in relays]
        answered = [self._answer(side, asked, owner, hop) for owner, side in enumerate(sides)]
        for rank, (side, relay) in enumerate(zip(sides, relays, strict=True)):
            own = side.answer(asked[rank].own, [asked[rank].own.numel()], hop)
            assert isinstance(own, RelayAnswers)
            words = torch.cat([answers.words.split(answers.counts)[rank] for answers in answered])
            counts = [answers.counts[rank] for answers in answered]
            assert relay.merge(own.words, words, counts) is None
            self.traffic.nodes += sum(asked[rank].nodes)
        self.traffic.picks += sum(sum(answers.picks) for answers in answered)

    def _answer(self, side: RelayPart, asked: Sequence[RelayQuestions], owner: int, hop: int) -> RelayAnswers:
        words = [one.words.split(one.counts)[owner] for one in asked]
        answers = side.answer(torch.cat(words), [one.numel() for one in words], hop)
        assert isinstance(answers, RelayAnswers)
        return answers


class _WideBook(PartitionBook):
    id_dtype = torch.int64  # type: ignore[assignment]


def _wide(part: Part) -> Part:
    relations = tuple(dataclasses.replace(one, indices=one.indices.long()) for one in part.relations)
    book = _WideBook(part.book.offsets, part.book.num_types)
    return dataclasses.replace(part, book=book, relations=relations)


def asked_nodes(plan: SamplingPlan, batch: SampledMinibatch, away: Sequence[Tensor]) -> int:
    """Returns the expanded nodes of others that a relation with a fanout leads into."""
    count, schema = 0, batch.schema
    for number, nodes in enumerate(batch.nodes):
        ends = [0, *torch.tensor(nodes.nodes_per_hop).cumsum(0).tolist()]
        into = [schema.relations[one] for one in schema.relations_into[number]]
        for hop in range(plan.num_hops):
            if any(plan.fanouts_of(relation)[hop] for relation in into):
                count += int(away[number][ends[hop] : ends[hop + 1]].sum())
    return count


def remote_edges(batch: SampledMinibatch, away: Sequence[Tensor]) -> int:
    """Returns the edges of a minibatch whose targets others own; see `asked_nodes`."""
    count = 0
    for target, edges in zip(batch.schema.target_types, batch.edges, strict=True):
        degrees = edges.indptr.diff()
        count += int(degrees[away[target][: degrees.numel()]].sum())
    return count
