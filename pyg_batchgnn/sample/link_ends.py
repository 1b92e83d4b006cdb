"""The ends of links and of negatives: which seeds they are, and which local ids they get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.sample.links import LabelledLinks, Links, SampledLinks, TripletLinks
from pyg_batchgnn.sample.negatives import NegativeMode, NegativePlan, Negatives


@dataclass(frozen=True, eq=False)
class EndNodes:
    """Nodes of one type that seeds are made of.

    Attributes:
        node_type: the name of the type.
        node: [n] int64, ids within the type; they may repeat.
        link: [n] int64, the number of the link that each belongs to, in the minibatch.
    """

    node_type: str
    node: Tensor
    link: Tensor


@dataclass(frozen=True, eq=False)
class PlacedNodes:
    """Seeds, and where the nodes that they were made of lie among them.

    Attributes:
        nodes: the seeds by type, [S_t] int64 each.
        local: the local ids of the nodes of each of the ends.
        link: [S] int64, the number of each seed's link; None if a seed may belong to several.
    """

    nodes: dict[str, Tensor]
    local: list[Tensor]
    link: Tensor | None


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
    def of(cls, links: Links, negatives: Negatives | None, plan: NegativePlan | None, first: int) -> LinkEnds:
        """Returns the ends.

        Args:
            links: the links.
            negatives: their negatives, or None.
            plan: the rule by which they were drawn, or None.
            first: the number of the first link in the minibatch.
        """
        number = torch.arange(links.count)
        source, target = [links.source], [links.target]
        positive = number[:0]
        if negatives is not None and plan is not None:
            # The first negatives of all links, then the second, ...: as PyG has them.
            order = torch.arange(negatives.positive.numel())
            if plan.mode is NegativeMode.TRIPLET:
                order = order.view(links.count, int(plan.amount)).t().reshape(-1)
            else:
                source.append(negatives.source)
            target.append(negatives.target[order])
            positive = negatives.positive[order]
        belongs = torch.cat([number, positive]) + first
        ends = [
            EndNodes(node_type, torch.cat(nodes), belongs[: sum(node.numel() for node in nodes)])
            for node_type, nodes in zip((links.relation[0], links.relation[2]), (source, target), strict=True)
        ]
        return cls(links, plan, positive, (ends[0], ends[1]))

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
    nodes, local = {}, [torch.empty(0)] * len(ends)
    for node_type, members in _by_type(ends).items():
        every = torch.cat([ends[at].node for at in members])
        nodes[node_type], inverse = every.unique(return_inverse=True)
        sizes = [ends[at].node.numel() for at in members]
        for at, part in zip(members, inverse.split(sizes), strict=True):
            local[at] = part
    return PlacedNodes(nodes, local, None)


def one_by_one(ends: Sequence[EndNodes]) -> PlacedNodes:
    """Makes one seed of each occurrence of a node."""
    nodes, local, link = {}, [torch.empty(0)] * len(ends), []
    for node_type, members in _by_type(ends).items():
        nodes[node_type] = torch.cat([ends[at].node for at in members])
        link += [ends[at].link for at in members]
        first = 0
        for at in members:
            count = ends[at].node.numel()
            local[at] = torch.arange(first, first + count)
            first += count
    return PlacedNodes(nodes, local, torch.cat(link))


def _by_type(ends: Sequence[EndNodes]) -> dict[str, list[int]]:
    """Returns the positions of the ends of each type; types in order of their first ends."""
    members: dict[str, list[int]] = {}
    for at, one in enumerate(ends):
        members.setdefault(one.node_type, []).append(at)
    return members
