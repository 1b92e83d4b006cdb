"""Finding the ends of the links of a macrobatch, and drawing their negatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from pyg_batchgnn.sample.links import Links
from pyg_batchgnn.sample.negative_draw import NegativeDraw
from pyg_batchgnn.sample.negatives import NegativeMode


@dataclass(frozen=True, eq=False)
class LinkDraw:
    """The links of one relation in a minibatch, and the drawing of their negatives.

    Attributes:
        links: the links.
        negatives: the drawing, or None without negatives.
    """

    links: Links
    negatives: NegativeDraw | None


@dataclass(frozen=True, eq=False)
class LinkIds:
    """The ids of the ends of links and of their negatives, original or internal ones.

    Attributes:
        source, target: [P] int64, of the links.
        negative_source: [N] int64; none for triplets, whose sources are those of the links.
        negative_target: [N] int64, in the order of the draws.
    """

    source: Tensor
    target: Tensor
    negative_source: Tensor
    negative_target: Tensor

    def sources(self) -> Tensor:
        """Returns the sources of the links, and those of negatives behind them."""
        return torch.cat([self.source, self.negative_source])

    def targets(self, order: Tensor) -> Tensor:
        """Returns the targets of the links, and those of negatives in some order behind them."""
        return torch.cat([self.target, self.negative_target[order]])


@dataclass(frozen=True, eq=False)
class FoundLinks:
    """The ends of the links of one relation in a minibatch, and of their negatives.

    Attributes:
        original: their original ids.
        internal: their internal ids; None if the whole graph is here.
    """

    original: LinkIds
    internal: LinkIds | None = None


class LinkFinder(Protocol):
    """Draws the negatives of a macrobatch, and finds the ids of all ends."""

    def find(self, draws: Sequence[LinkDraw], epoch: int, number: int) -> list[FoundLinks]:
        """Returns the ends of links; collective over ranks.

        Args:
            draws: the links of all minibatches and relations.
            epoch: the epoch.
            number: the macrobatch's number in the epoch.

        Raises:
            ValueError: a negative cannot be drawn. The message names its link.
        """


class LocalFinder:
    """Draws negatives from a graph that is here, by original ids; see `LinkFinder`."""

    def find(self, draws: Sequence[LinkDraw], epoch: int, number: int) -> list[FoundLinks]:  # noqa: ARG002
        """Returns the ends of links by original ids."""
        return [FoundLinks(self._ids(draw)) for draw in draws]

    def _ids(self, draw: LinkDraw) -> LinkIds:
        links, negatives = draw.links, draw.negatives
        none = links.source[:0]
        if negatives is None:
            return LinkIds(links.source, links.target, none, none)
        drawn = negatives.draw()
        is_binary = negatives.plan.mode is NegativeMode.BINARY
        return LinkIds(links.source, links.target, drawn.source if is_binary else none, drawn.target)
