"""The seeds of a minibatch of links, made of the ends of links and negatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.data import Relation, Schema
from pyg_batchgnn.sample.link_ends import LinkEnds, distinct, one_by_one
from pyg_batchgnn.sample.links import Links, SampledLinks
from pyg_batchgnn.sample.negative_draw import draw_negatives
from pyg_batchgnn.sample.negatives import NegativePlan, Negatives, negative_key
from pyg_batchgnn.sample.seed_edges import SeedEdges
from pyg_batchgnn.sample.seeds import Seeds


@dataclass(frozen=True, eq=False)
class LinkStart:
    """The beginning of a minibatch of links.

    Attributes:
        seeds: the ends of the links and of the negatives.
        links: the links of each relation, by local ids.
    """

    seeds: Seeds
    links: tuple[SampledLinks, ...]


@dataclass(frozen=True, eq=False)
class LinkSeeder:
    """Makes the seeds of minibatches of links.

    Attributes:
        schema: the node types and relations of the graph.
        negatives: the plan of each relation whose links get negatives.
        is_disjoint: True if every link is an example of its own, with its negatives.
        excluded: the edges of the links that must not be sampled; None excludes none.
    """

    schema: Schema
    negatives: Mapping[Relation, NegativePlan] = field(default_factory=dict)
    is_disjoint: bool = False
    excluded: SeedEdges | None = None

    def start(self, links: Sequence[Links], seed: int, epoch: int) -> LinkStart:
        """Draws negatives and returns the seeds of one minibatch.

        Seeds are distinct and sorted by id. If every link is an example of its own, each end is a
        seed: links before their negatives, relation by relation.

        Args:
            links: the links of each relation.
            seed: the seed of the sampler.
            epoch: the epoch.

        Raises:
            ValueError: a negative cannot be drawn. The message names its link.
        """
        key = links_key(self.schema, links)
        every, first = [], 0
        for one in links:
            negative = self._negatives(one, negative_key(seed, epoch, key, self._digest(one.relation)))
            every.append(LinkEnds.of(one, negative, self.negatives.get(one.relation), first))
            first += one.count
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
        return LinkStart(seeds, tuple(one.sampled(source, target) for one, source, target in local))

    def _digest(self, relation: Relation) -> int | None:
        return None if self.schema.is_plain else ops.names_key(relation)

    def _negatives(self, links: Links, key: int) -> Negatives | None:
        plan = self.negatives.get(links.relation)
        return None if plan is None else draw_negatives(plan, links.source, links.target, links.time, key)


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
