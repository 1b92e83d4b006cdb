"""The ends of links and of negatives: which seeds they are, and which local ids they get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.sample.link_finder import FoundLinks, LinkDraw
from pyg_batchgnn.sample.links import LabelledLinks, Links, SampledLinks, TripletLinks
from pyg_batchgnn.sample.negatives import NegativeMode, NegativePlan


@dataclass(frozen=True, eq=False)
class EndNodes:
    """Nodes of one type that seeds are made of.

    Attributes:
        node_type: the name of the type.
        node: [n] int64, ids within the type; they may repeat.
        link: [n] int64, the number of the link that each belongs to, in the minibatch.
        internal: [n] int64, their internal ids, or None.
    """

    node_type: str
    node: Tensor
    link: Tensor
    internal: Tensor | None = None


@dataclass(frozen=True, eq=False)
class PlacedNodes:
    """Seeds, and where the nodes that they were made of lie among them.

    Attributes:
        nodes: the seeds by type, [S_t] int64 each.
        local: the local ids of the nodes of each of the ends.
        link: [S] int64, the number of each seed's link; None if a seed may belong to several.
        internal: the internal ids of the seeds by type, where they are known.
    """

    nodes: dict[str, Tensor]
    local: list[Tensor]
    link: Tensor | None
    internal: dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class LinkEnds:
    """The ends of one relation's links, with those of their negatives behind them.

    Attributes:
        links: the links.
        plan: the rule by which negatives were drawn; None without negatives.
        positive: [N] int64, the number of the link that each negative belongs to.
        ends: the sources and the targets.
    """

    links: Links
    plan: NegativePlan | None
    positive: Tensor
    ends: tuple[EndNodes, EndNodes]

    @classmethod
    def of(cls, draw: LinkDraw, found: FoundLinks, first: int) -> LinkEnds:
        """Returns the ends.

        Args:
            draw: the links, and the drawing of their negatives.
            found: the ids of all ends.
            first: the number of the first link in the minibatch.
        """
        links, negatives = draw.links, draw.negatives
        number = torch.arange(links.count)
        positive = order = number[:0]
        if negatives is not None:
            # The first negatives of all links, then the second, ...: as PyG has them.
            order = torch.arange(negatives.count)
            if negatives.plan.mode is NegativeMode.TRIPLET:
                order = order.view(links.count, int(negatives.plan.amount)).t().reshape(-1)
            positive = negatives.positive[order]
        belongs = torch.cat([number, positive]) + first
        original, internal = found.original, found.internal
        ends = (
            (original.sources(), None if internal is None else internal.sources()),
            (original.targets(order), None if internal is None else internal.targets(order)),
        )
        source, target = (
            EndNodes(node_type, node, belongs[: node.numel()], ids)
            for node_type, (node, ids) in zip((links.relation[0], links.relation[2]), ends, strict=True)
        )
        return cls(links, None if negatives is None else negatives.plan, positive, (source, target))

    def sampled(self, source: Tensor, target: Tensor) -> SampledLinks:
        """Returns the links by local ids, given those of all sources and of all targets."""
        links, count = self.links, self.links.count
        if self.plan is not None and self.plan.mode is NegativeMode.TRIPLET:
            amount = int(self.plan.amount)
            negative = target[count:].view(amount, count).t()
            return TripletLinks(
                links.relation,
                links.input_id,
                source,
                target[:count],
                negative.reshape(-1) if amount == 1 else negative.contiguous(),
                links.time,
            )
        time = None if links.time is None else torch.cat([links.time, links.time[self.positive]])
        return LabelledLinks(
            links.relation, links.input_id, torch.stack([source, target]), self._labels(), time
        )

    def _labels(self) -> Tensor | None:
        """Returns the labels of the links, and zeros for their negatives."""
        label = self.links.label
        if self.plan is None:
            return label
        label = torch.ones(self.links.count) if label is None else label
        return torch.cat([label, label.new_zeros(self.positive.numel(), *label.shape[1:])])


def distinct(ends: Sequence[EndNodes]) -> PlacedNodes:
    """Makes one seed of each distinct node, in ascending order of ids."""
    nodes, internal, local = {}, {}, [torch.empty(0)] * len(ends)
    for node_type, members in _by_type(ends).items():
        every = torch.cat([ends[at].node for at in members])
        nodes[node_type], inverse = every.unique(return_inverse=True)
        if (ids := _internal(ends, members)) is not None:
            internal[node_type] = torch.empty_like(nodes[node_type])
            internal[node_type][inverse] = ids
        sizes = [ends[at].node.numel() for at in members]
        for at, part in zip(members, inverse.split(sizes), strict=True):
            local[at] = part
    return PlacedNodes(nodes, local, None, internal)


def one_by_one(ends: Sequence[EndNodes]) -> PlacedNodes:
    """Makes one seed of each occurrence of a node."""
    nodes, internal, local, link = {}, {}, [torch.empty(0)] * len(ends), []
    for node_type, members in _by_type(ends).items():
        nodes[node_type] = torch.cat([ends[at].node for at in members])
        if (ids := _internal(ends, members)) is not None:
            internal[node_type] = ids
        link += [ends[at].link for at in members]
        first = 0
        for at in members:
            count = ends[at].node.numel()
            local[at] = torch.arange(first, first + count)
            first += count
    return PlacedNodes(nodes, local, torch.cat(link), internal)


def _internal(ends: Sequence[EndNodes], members: Sequence[int]) -> Tensor | None:
    """Returns the internal ids of the nodes of some ends, where they are known."""
    ids = [ends[at].internal for at in members]
    known = [one for one in ids if one is not None]
    return torch.cat(known) if len(known) == len(ids) else None


def _by_type(ends: Sequence[EndNodes]) -> dict[str, list[int]]:
    """Returns the positions of the ends of each type; types in order of their first ends."""
    members: dict[str, list[int]] = {}
    for at, one in enumerate(ends):
        members.setdefault(one.node_type, []).append(at)
    return members
