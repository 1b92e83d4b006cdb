"""The seeds of a minibatch of links, made of the ends of links and negatives."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.data import Relation, Schema
from pyg_batchgnn.sample.link_ends import LinkEnds, distinct, one_by_one
from pyg_batchgnn.sample.link_finder import FoundLinks, LinkDraw, LinkFinder, LocalFinder
from pyg_batchgnn.sample.links import Links, SampledLinks
from pyg_batchgnn.sample.negative_draw import NegativeDraw
from pyg_batchgnn.sample.negatives import NegativePlan, negative_key
from pyg_batchgnn.sample.seed_edges import SeedEdges
from pyg_batchgnn.sample.seeds import Seeds


@dataclass(frozen=True, eq=False)
class LinkStart:
    """The beginning of a minibatch of links.

    Attributes:
        seeds: the ends of the links and of the negatives.
        links: the links of each relation, by local ids.
        internal: [S] int64, the internal ids of the seeds, by type in the order of the schema; None
            if the whole graph is here.
        late_negatives: how many negatives are later than their link.
    """

    seeds: Seeds
    links: tuple[SampledLinks, ...]
    internal: Tensor | None = None
    late_negatives: int = 0


@dataclass(frozen=True, eq=False)
class LinkSeeder:
    """Makes the seeds of minibatches of links.

    Attributes:
        schema: the node types and relations of the graph.
        negatives: the plan of each relation whose links get negatives.
        is_disjoint: True if every link is an example of its own, with its negatives.
        excluded: the edges of the links that must not be sampled; None excludes none.
        finder: draws the negatives and finds the ids of all ends.
    """

    schema: Schema
    negatives: Mapping[Relation, NegativePlan] = field(default_factory=dict)
    is_disjoint: bool = False
    excluded: SeedEdges | None = None
    finder: LinkFinder = field(default_factory=LocalFinder)

    def start(self, links: Sequence[Links], seed: int, epoch: int) -> LinkStart:
        """Draws negatives and returns the seeds of one minibatch; see `start_all`."""
        (start,) = self.start_all([links], seed, epoch)
        return start

    def start_all(
        self, minibatches: Sequence[Sequence[Links]], seed: int, epoch: int, number: int = -1
    ) -> list[LinkStart]:
        """Draws negatives and returns the seeds of each minibatch; collective over ranks.

        Seeds are distinct and sorted by id. If every link is an example of its own, each end is a
        seed: links before their negatives, relation by relation.

        Args:
            minibatches: the links of each relation, for each minibatch.
            seed: the seed of the sampler.
            epoch: the epoch.
            number: the macrobatch's number in the epoch.

        Raises:
            ValueError: a negative cannot be drawn. The message names its link.
        """
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
            return LinkDraw(links, None)
        relation = None if self.schema.is_plain else ops.names_key(links.relation)
        drawn = negative_key(seed, epoch, key, relation)
        return LinkDraw(links, NegativeDraw(plan, links.source, links.target, links.time, drawn))

    def _start(self, draws: Sequence[LinkDraw], found: Sequence[FoundLinks], key: int) -> LinkStart:
        """Returns the seeds of one minibatch, whose ends are found."""
        links = [draw.links for draw in draws]
        firsts = [0, *itertools.accumulate(one.count for one in links)][: len(links)]
        every = [LinkEnds.of(*one) for one in zip(draws, found, firsts, strict=True)]
        place = one_by_one if self.is_disjoint else distinct
        placed = place([end for one in every for end in one.ends])
        seeds = Seeds.of(
            self.schema,
            placed.nodes,
            key=key,
            time=None if placed.link is None else _times(links, placed.link),
            example=placed.link,
            excluded=None if self.excluded is None else self.excluded.of(links, self.is_disjoint),
        )
        local = zip(every, placed.local[::2], placed.local[1::2], strict=True)
        known = [placed.internal[name] for name in self.schema.node_types if name in placed.internal]
        return LinkStart(
            seeds,
            tuple(one.sampled(source, target) for one, source, target in local),
            torch.cat(known) if known else None,
            sum(draw.negatives.late for draw in draws if draw.negatives is not None),
        )


def links_key(schema: Schema, links: Sequence[Links]) -> int:
    """Returns the digest of the links of a minibatch, in [0, 2**64).

    In a graph of one type and one relation it is the digest of source, target, source, target, ...
    Otherwise each relation that has links adds the digest of its names and that of its links, in
    ascending order of the names' UTF-8 bytes.
    """
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
    """Returns the time of each seed, given the number of its link in the minibatch."""
    times = [one.time for one in links if one.time is not None]
    return torch.cat(times)[number] if times else None
