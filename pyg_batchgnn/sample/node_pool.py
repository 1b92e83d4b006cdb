"""The nodes that negatives are drawn from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.ops import WordStreams
from pyg_batchgnn.sample.block_sums import BlockSums


@dataclass(frozen=True, eq=False)
class NodePool:
    """The nodes of one type, in an order in which those allowed at a time come first.

    Draws are positions in this order.

    Attributes:
        num_nodes: the number of nodes, N.
        moment: [m] int64, ascending times; None: all nodes are always allowed.
        reached: [m] int64, how many nodes are allowed from each moment on; None: 1, 2, ..., as each
            moment is the time of one node.
        order: [N] int64, the node at each position. None: the position is the id, or the nodes are
            spread over ranks.
        weight: [N] float64, the weight at each position; None: all have the same.
    """

    num_nodes: int
    moment: Tensor | None = None
    reached: Tensor | None = None
    order: Tensor | None = None
    weight: Tensor | None = None

    @classmethod
    def of(cls, num_nodes: int, time: Tensor | None = None, weight: Tensor | None = None) -> NodePool:
        """Returns the pool of the nodes 0, 1, ..., by (time, id).

        Args:
            num_nodes: the number of nodes, N.
            time: [N] int64, from when each node is allowed; None: always.
            weight: [N] weights of any floating point type, or None.
        """
        weight = None if weight is None else weight.double()
        if time is None:
            return cls(num_nodes, weight=weight)
        moment, order = time.sort(stable=True)
        return cls(num_nodes, moment, None, order, None if weight is None else weight[order])

    @cached_property
    def sums(self) -> BlockSums | None:
        """The prefix sums of the weights."""
        return None if self.weight is None else BlockSums.of(self.weight)

    @cached_property
    def earliest(self) -> int:
        """The number of nodes up to the first one that can be drawn; 0 if none can."""
        if self.weight is None:
            return min(self.num_nodes, 1)
        positive = self.weight > 0
        return int(positive.to(torch.uint8).argmax()) + 1 if bool(positive.any()) else 0

    def allowed(self, time: Tensor | None, count: int) -> Tensor:
        """Returns how many nodes are allowed for each of ``count`` draws, [count] int64.

        They are the first of the order. None is said to be allowed where all have zero weight.

        Args:
            time: [count] int64, the time of each draw, or None.
            count: the number of draws.
        """
        if self.moment is None or time is None:
            found = torch.full((count,), self.num_nodes)
        else:
            found = torch.searchsorted(self.moment, time, right=True)
            if self.reached is not None:
                found = torch.cat([torch.zeros(1, dtype=torch.int64), self.reached])[found]
        return found if self.sums is None else found * (self.sums.before(found) > 0)

    def draw(self, streams: WordStreams, which: Tensor, allowed: Tensor) -> Tensor:
        """Returns one position for each of some streams.

        Args:
            streams: the streams of words.
            which: [w] int64, positions of the streams.
            allowed: [w] int64, at least 1: what `allowed` returned.
        """
        if self.sums is None:
            return streams.bounded(allowed, which)
        return self.sums.find(streams.uniform(which) * self.sums.before(allowed), allowed)

    def node(self, position: Tensor) -> Tensor:
        """Returns the nodes at some positions."""
        return position if self.order is None else self.order[position]

    def position(self, node: Tensor) -> Tensor:
        """Returns the positions of some nodes."""
        return node if self._positions is None else self._positions[node]

    def draw_outside(self, streams: WordStreams, which: int, allowed: int, taken: Tensor) -> int | None:
        """Returns a position that is not taken, or None if there is none.

        Args:
            streams: the streams of words.
            which: the position of the stream.
            allowed: how many nodes are allowed.
            taken: [n] int64, distinct positions in ascending order.
        """
        position = taken[taken < allowed]
        stream = torch.tensor([which])
        if self.weight is not None:
            return self._weighted_outside(streams, stream, allowed, position)
        free = allowed - position.numel()
        if not free:
            return None
        rank = streams.bounded(torch.tensor([free]), stream)
        skipped = torch.searchsorted(position - torch.arange(position.numel()), rank, right=True)
        return int(rank + skipped)

    def _weighted_outside(
        self, streams: WordStreams, stream: Tensor, allowed: int, position: Tensor
    ) -> int | None:
        """Draws in one pass over the allowed nodes, with fresh sums of those that are free."""
        assert self.weight is not None
        weight = self.weight[:allowed].clone()
        weight[position] = 0
        sums = np.cumsum(weight.numpy())
        if not sums.size or sums[-1] == 0:
            return None
        level = float(streams.uniform(stream)) * sums[-1]
        return int(np.searchsorted(sums, level, side="right"))

    @cached_property
    def _positions(self) -> Tensor | None:
        if self.order is None:
            return None
        positions = torch.empty_like(self.order)
        positions[self.order] = torch.arange(self.num_nodes)
        return positions
