"""The seeds of a minibatch of links, made of the ends of links and negatives."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.sample.negatives import (
    GivenDraw,
    NegativeDraw,
    NegativePlan,
    accidental_hits,
    negative_key,
)
from pyg_batchgnn.sample.sampling_plan import Direction
from pyg_batchgnn.sample.seeds import ExcludedPairs, Seeds, frozen
from pyg_batchgnn.types import (
    LabelledLinks,
    Relation,
    SampledLinks,
    Schema,
    TripletLinks,
    reverse_of,
    stored_reverse,
)


@dataclass(frozen=True, eq=False)
class Links:
    """The links of one relation that a minibatch begins with."""

    relation: Relation  # the relation. The graph need not have it, only the types of its ends.
    # source, target: [P] int64, ids within their types.
    source: Tensor
    target: Tensor
    input_id: Tensor  # [P] int64, their positions in the loader's input of this relation
    label: Tensor | None = None  # [P, ...], or None
    time: Tensor | None = None  # [P] int64, or None
    given: Tensor | None = None  # [P, k] int64, targets that are their negatives, or None
    log_q: Tensor | None = None  # [P] float32, as of `LabelledLinks`

    @property
    def count(self) -> int:
        return self.source.numel()


@dataclass(frozen=True, eq=False)
class LinkDraw:
    """The links of one relation in a minibatch, and their negatives, which are drawn here."""

    links: Links
    negatives: NegativeDraw | GivenDraw | None

    @cached_property
    def order(self) -> Tensor:
        """[N] int64, the negatives in PyG's order: the first of all links, then the second of
        all."""
        if self.negatives is None:
            return torch.empty(0, dtype=torch.int64)
        order = torch.arange(self.negatives.count)
        if self.negatives.is_triplet:
            order = order.view(self.links.count, int(self.negatives.amount)).t().reshape(-1)
        return order

    @property
    def positive(self) -> Tensor:
        """[N] int64, the index of the link that each negative, in this order, belongs to."""
        return self.order if self.negatives is None else self.negatives.positive[self.order]

    def ends(self, found: FoundLinks, first: int) -> list[EndNodes]:
        """Returns the sources and the targets: those of the links, then those of the negatives.
        ``first``: the index of the first of these links among all links of the minibatch."""
        links, original, internal = self.links, found.original, found.internal
        belongs = torch.cat([torch.arange(links.count), self.positive]) + first
        sources, targets = original.sources(), original.targets(self.order)
        return [
            EndNodes(
                links.relation[0],
                sources,
                belongs[: sources.numel()],
                None if internal is None else internal.sources(),
            ),
            EndNodes(
                links.relation[2],
                targets,
                belongs[: targets.numel()],
                None if internal is None else internal.targets(self.order),
            ),
        ]

    def sampled(self, source: Tensor, target: Tensor) -> SampledLinks:
        links, count, negatives = self.links, self.links.count, self.negatives
        if negatives is not None and negatives.is_triplet:
            amount = int(negatives.amount)
            negative = target[count:].view(amount, count).t()
            negative = negative.reshape(-1) if amount == 1 else negative.contiguous()
            return TripletLinks(links.relation, links.input_id, source, target[:count], negative, links.time)
        time = None if links.time is None else torch.cat([links.time, links.time[self.positive]])
        label = links.label
        if negatives is not None:
            label = torch.ones(count) if label is None else label
            label = torch.cat([label, label.new_zeros(self.positive.numel(), *label.shape[1:])])
        hits = None if links.log_q is None else accidental_hits(links.source, links.target)
        index = torch.stack([source, target])
        return LabelledLinks(links.relation, links.input_id, index, label, time, links.log_q, hits)


@dataclass(frozen=True, eq=False)
class LinkIds:
    """The ids of the ends of links and of negatives, all original or all internal."""

    # source, target: [P] int64, of the links.
    source: Tensor
    target: Tensor
    negative_source: Tensor  # [N] int64; empty for triplets, which share the sources of the links
    negative_target: Tensor  # [N] int64, in the order of the draws

    def sources(self) -> Tensor:
        return torch.cat([self.source, self.negative_source])

    def targets(self, order: Tensor) -> Tensor:
        return torch.cat([self.target, self.negative_target[order]])


@dataclass(frozen=True, eq=False)
class FoundLinks:
    """The ends of a minibatch's links of one relation, and of their negatives."""

    original: LinkIds  # their original ids
    internal: LinkIds | None = None  # their internal ids; None if the whole graph is here


class LinkFinder(Protocol):
    """Draws the negatives of a macrobatch, and looks up the ids of all ends."""

    def find(self, draws: Sequence[LinkDraw], epoch: int, number: int) -> list[FoundLinks]:
        """Returns the ends for each entry of ``draws``; collective over ranks. Raises ValueError,
        with the link, if a negative cannot be drawn."""


class LocalFinder:
    """Draws negatives in a graph that this process holds whole. There are no internal ids."""

    def find(self, draws: Sequence[LinkDraw], epoch: int, number: int) -> list[FoundLinks]:  # noqa: ARG002
        return [FoundLinks(self._ids(draw)) for draw in draws]

    def _ids(self, draw: LinkDraw) -> LinkIds:
        links, negatives = draw.links, draw.negatives
        none = links.source[:0]
        if negatives is None:
            return LinkIds(links.source, links.target, none, none)
        drawn = negatives.draw()
        sources = none if negatives.is_triplet else drawn.source
        return LinkIds(links.source, links.target, sources, drawn.target)


@dataclass(frozen=True, eq=False)
class EndNodes:
    """Ends of links, all of one node type, from which seeds are made."""

    node_type: str
    node: Tensor  # [n] int64, ids within the type; they may repeat
    link: Tensor  # [n] int64, the number of the link that each belongs to, in the minibatch
    internal: Tensor | None = None  # [n] int64, their internal ids, or None


@dataclass(frozen=True, eq=False)
class PlacedNodes:
    """Seeds, and the places among them of the nodes from which they were made."""

    nodes: dict[str, Tensor]  # the seeds by type, [S_t] int64 each
    local: list[Tensor]  # the local ids of the nodes of each of the ends
    # [S] int64, the number of each seed's link; None if a seed may belong to several.
    link: Tensor | None
    internal: dict[str, Tensor]  # the internal ids of the seeds by type, where they are known


def placed_nodes(ends: Sequence[EndNodes], is_disjoint: bool) -> PlacedNodes:
    """Makes seeds from nodes: one of each distinct node, ascending; in disjoint sampling one of
    each node as often as it occurs."""
    nodes, internal, local, link = {}, {}, [torch.empty(0)] * len(ends), []
    for node_type in dict.fromkeys(one.node_type for one in ends):
        members = [at for at, one in enumerate(ends) if one.node_type == node_type]
        every = torch.cat([ends[at].node for at in members])
        nodes[node_type], place = every, torch.arange(every.numel())
        if not is_disjoint:
            nodes[node_type], place = every.unique(return_inverse=True)
        link += [ends[at].link for at in members]
        known = [one for at in members if (one := ends[at].internal) is not None]
        if known:
            internal[node_type] = torch.empty_like(nodes[node_type])
            internal[node_type][place] = torch.cat(known)
        sizes = [ends[at].node.numel() for at in members]
        for at, part in zip(members, place.split(sizes), strict=True):
            local[at] = part
    return PlacedNodes(nodes, local, torch.cat(link) if is_disjoint else None, internal)


@dataclass(frozen=True)
class SeedEdges:
    """The rule that keeps the edges of a minibatch's links out of its sample: in disjoint sampling,
    a seed's subgraph leaves out only the edges of its own link."""

    # For each relation that has links, those in which (source, target) is excluded, and those in
    # which (target, source) is.
    relations: Mapping[Relation, tuple[tuple[Relation, ...], tuple[Relation, ...]]]
    by_id: bool = False  # True for the edges of the links' input ids alone; False for parallel ones too
    # [E] int64, the id of the reverse of each edge, -1 without one; None: the reverse has its id.
    paired: Tensor | None = None

    @classmethod
    def wanted(
        cls, wanted: Any, schema: Schema, linked: Sequence[Relation], direction: Direction = Direction.FORWARD
    ) -> SeedEdges | None:
        """Returns the rule for ``exclude_seed_edges``; None if nothing is excluded. ``wanted``:
        False, True, "reverse", a dict from relations to their reverses, "edges" or ("edges",
        paired). ``direction``: backward, the sampled graph's relations are reversed."""
        if wanted is False or wanted is None:
            return None
        if isinstance(wanted, tuple) or wanted == "edges":
            return cls._edges(wanted, schema, linked, direction)
        if direction is Direction.BACKWARD:
            found = cls._forward(wanted, schema, linked).relations.items()
            return cls({one: (backward, forward) for one, (forward, backward) in found})
        return cls._forward(wanted, schema, linked)

    @classmethod
    def _forward(cls, wanted: Any, schema: Schema, linked: Sequence[Relation]) -> SeedEdges:
        if wanted is True:
            return cls.forward(schema, linked)
        if wanted == "reverse":
            return cls.both_ways(schema, linked)
        if isinstance(wanted, Mapping):
            reverses = {
                named_relation(schema, one): named_relation(schema, other) for one, other in wanted.items()
            }
            if unknown := [one for one in reverses if one not in (*schema.relations, *linked)]:
                raise ValueError(
                    f"exclude_seed_edges names {unknown[0]}, which the graph does not have; it has "
                    f"{list(schema.relations)}"
                )
            return cls.both_ways(schema, linked, reverses)
        raise TypeError(
            f"exclude_seed_edges must be True, 'reverse', 'edges', ('edges', ids of reverse edges), or a "
            f"dict from edge types to their reverses, got {wanted!r}"
        )

    @classmethod
    def _edges(
        cls, wanted: Any, schema: Schema, linked: Sequence[Relation], direction: Direction
    ) -> SeedEdges:
        name, paired = (wanted, None) if isinstance(wanted, str) else (*wanted, None)[:2]
        if name != "edges" or not (paired is None or isinstance(paired, Tensor)):
            raise TypeError(f"exclude_seed_edges is {wanted!r}; give 'edges', or ('edges', ids [E])")
        if direction is Direction.BACKWARD:
            raise NotImplementedError("exclude_seed_edges='edges' does not go backward; give pairs: True")
        if unknown := [one for one in linked if one not in schema.relations]:
            raise ValueError(
                f"exclude_seed_edges='edges' excludes links by their ids, but {unknown[0]} is no relation "
                f"of the graph; it has {list(schema.relations)}"
            )
        back = {one: stored_reverse(schema, one) for one in linked}
        if paired is not None:
            if len(linked) > 1 or paired.dtype != torch.int64 or paired.dim() != 1:
                raise ValueError(
                    "exclude_seed_edges=('edges', ids) is for links of one relation, and [E] int64 ids"
                )
            back = {one: found or one for one, found in back.items()}
        return cls({one: ((one,), (found,) if found else ()) for one, found in back.items()}, True, paired)

    @classmethod
    def forward(cls, schema: Schema, linked: Sequence[Relation]) -> SeedEdges:
        return cls({one: (_known(schema, one), ()) for one in linked})

    @classmethod
    def both_ways(
        cls, schema: Schema, linked: Sequence[Relation], reverse: Mapping[Relation, Relation] | None = None
    ) -> SeedEdges:
        """Excludes links and their reverses. ``reverse``: the relation of the reverses, by
        relation. None: the same one if it is the only one, else the one with "rev_" before its
        name, or without it."""
        found = {one: _reverse(schema, one, reverse) for one in linked}
        return cls({one: (_known(schema, one), (found[one],)) for one in linked})

    def of(self, links: Sequence[Links], is_disjoint: bool) -> dict[Relation, ExcludedPairs]:
        """Returns by relation the node pairs between which such a minibatch may pick no edge."""
        # By relation: the pairs, the numbers of their examples, and the ids of their edges.
        rows: dict[Relation, list[Tensor]] = defaultdict(list)
        first = 0
        for one in links:
            number = torch.arange(first, first + one.count)
            back = one.input_id if self.paired is None else self.paired[one.input_id]
            forward, backward = self.relations[one.relation]
            for relation in forward:
                rows[relation].append(torch.stack([one.source, one.target, number, one.input_id]))
            for relation in backward:
                found = torch.stack([one.target, one.source, number, back])
                rows[relation].append(found[:, back >= 0] if self.by_id else found)
            first += one.count
        excluded = {}
        for relation, every in rows.items():
            table = torch.cat(every, dim=1)
            example, edge = (table[2] if is_disjoint else None, table[3] if self.by_id else None)
            excluded[relation] = ExcludedPairs(table[:2], example, edge)
        return excluded


def named_relation(schema: Schema, names: Sequence[str]) -> Relation:
    """Returns the relation of three names, or of its two ends: the only relation between these
    types, else the one called "to"."""
    if len(names) == 3:
        return names[0], names[1], names[2]
    found = [one for one in schema.relations if (one[0], one[2]) == (names[0], names[1])]
    return found[0] if len(found) == 1 else (names[0], "to", names[1])


def _known(schema: Schema, relation: Relation) -> tuple[Relation, ...]:
    return (relation,) if relation in schema.relations else ()


def _reverse(schema: Schema, relation: Relation, given: Mapping[Relation, Relation] | None) -> Relation:
    source, _, target = relation
    if given is None and schema.is_plain:
        return schema.relations[0]
    if given is None:
        stored = stored_reverse(schema, relation)
        if stored is None:
            raise ValueError(
                f"exclude_seed_edges='reverse' finds no relation {reverse_of(relation)} that reverses "
                f"{relation}; {_instead(schema, relation)}"
            )
        return stored
    if relation not in given:
        raise ValueError(f"exclude_seed_edges names no reverse of {relation}; it has {list(given)}")
    found = given[relation]
    if found not in schema.relations or (found[0], found[2]) != (target, source):
        raise ValueError(
            f"exclude_seed_edges says that {found} reverses {relation}, but it is no relation of the graph "
            f"from {target!r} to {source!r}; its relations are {list(schema.relations)}"
        )
    return found


def _instead(schema: Schema, relation: Relation) -> str:
    back = [one for one in schema.relations if (one[0], one[2]) == (relation[2], relation[0])]
    if not back:
        return "the graph has none from its target to its source: give True"
    likely = relation if relation in back else back[0]
    return f"give a dict that names the relation in which its reverses lie, like {{{relation}: {likely}}}"


@dataclass(frozen=True, eq=False)
class LinkStart:
    """The seeds and links that a minibatch begins with."""

    seeds: Seeds  # the ends of the links and of the negatives
    links: tuple[SampledLinks, ...]  # the links of each relation, by local ids
    # [S] int64, the seeds' internal ids, by type in the schema's order; None if the graph is whole.
    internal: Tensor | None = None
    late_negatives: int = 0  # how many negatives are later than their link


@dataclass(frozen=True, eq=False)
class LinkSeeder:
    """Makes the seeds of minibatches from links and their negatives."""

    schema: Schema
    # The plan of each relation whose links get negatives.
    negatives: Mapping[Relation, NegativePlan] = field(default_factory=dict)
    is_disjoint: bool = False  # True if every link is an example of its own, with its negatives
    # The edges of the links that must not be sampled; None excludes none.
    excluded: SeedEdges | None = None
    finder: LinkFinder = field(default_factory=LocalFinder)
    freeze: int | None = None  # negatives are not later than this, as of `SamplingPlan`

    def start(self, links: Sequence[Links], seed: int, epoch: int) -> LinkStart:
        (start,) = self.start_all([links], seed, epoch)
        return start

    def start_all(
        self, minibatches: Sequence[Sequence[Links]], seed: int, epoch: int, number: int = -1
    ) -> list[LinkStart]:
        """Draws negatives and returns the seeds of each minibatch; collective over ranks. Seeds are
        distinct and sorted by id. In disjoint sampling each end is a seed: links before their
        negatives, relation by relation. Raises ValueError, with the link, if none can be drawn."""
        keys = [links_key(self.schema, links) for links in minibatches]
        draws = [
            [self._draw(one, seed, epoch, key) for one in links]
            for links, key in zip(minibatches, keys, strict=True)
        ]
        found = iter(self.finder.find([one for drawn in draws for one in drawn], epoch, number))
        return [
            self._start(drawn, list(itertools.islice(found, len(drawn))), key)
            for drawn, key in zip(draws, keys, strict=True)
        ]

    def _draw(self, links: Links, seed: int, epoch: int, key: int) -> LinkDraw:
        plan = self.negatives.get(links.relation)
        if plan is None:
            return LinkDraw(links, None if links.given is None else GivenDraw(links.source, links.given))
        relation = None if self.schema.is_plain else ops.names_key(links.relation)
        drawn = negative_key(seed, epoch, key, relation)
        time = frozen(links.time, self.freeze)
        return LinkDraw(links, NegativeDraw(plan, links.source, links.target, time, drawn))

    def _start(self, draws: Sequence[LinkDraw], found: Sequence[FoundLinks], key: int) -> LinkStart:
        links = [draw.links for draw in draws]
        firsts = [0, *itertools.accumulate(one.count for one in links)][: len(links)]
        every = zip(draws, found, firsts, strict=True)
        ends = [end for draw, ids, first in every for end in draw.ends(ids, first)]
        placed = placed_nodes(ends, self.is_disjoint)
        seeds = Seeds.of(
            self.schema,
            placed.nodes,
            key=key,
            time=None if placed.link is None else _times(links, placed.link),
            example=placed.link,
            excluded=None if self.excluded is None else self.excluded.of(links, self.is_disjoint),
        )
        local = zip(draws, placed.local[::2], placed.local[1::2], strict=True)
        known = [placed.internal[name] for name in self.schema.node_types if name in placed.internal]
        return LinkStart(
            seeds,
            tuple(one.sampled(source, target) for one, source, target in local),
            torch.cat(known) if known else None,
            sum(draw.negatives.late for draw in draws if draw.negatives is not None),
        )


def links_key(schema: Schema, links: Sequence[Links]) -> int:
    """Returns the digest of a minibatch's links, in [0, 2**64). With one type and one relation it
    is the digest of source, target, source, target, ... Else each relation with links adds the
    digests of its names and of its links, in order of the names' UTF-8 bytes."""
    if schema.is_plain and len(links) == 1:
        return _pairs_key(links[0])
    key = 0
    given = [one for one in links if one.count]
    for one in sorted(given, key=lambda one: [name.encode() for name in one.relation]):
        key = ops.fold_key(ops.fold_key(key, ops.names_key(one.relation)), _pairs_key(one))
    return key


def _pairs_key(links: Links) -> int:
    return ops.minibatch_key(torch.stack([links.source, links.target], dim=1).view(-1))


def _times(links: Sequence[Links], number: Tensor) -> Tensor | None:
    times = [one.time for one in links if one.time is not None]
    return torch.cat(times)[number] if times else None
