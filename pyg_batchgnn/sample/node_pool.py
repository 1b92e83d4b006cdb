"""The nodes that negatives are drawn from, and the pairs of them that edges join."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.ops import InEdges, WordStreams

#: Entries of a block.
BLOCK = 4096
_STEPS = BLOCK.bit_length() - 1


@dataclass(frozen=True, eq=False)
class BlockSums:
    """Prefix sums of weights in float64, which begin anew in every block. They are added in order,
    so that their bits do not depend on threads or ranks."""

    # [blocks, BLOCK] float64, within each block the sum of its weights up to and with each
    # position. The last block is filled with weights of zero.
    inner: Tensor
    outer: Tensor  # [blocks] float64, the sum of the blocks up to and with each

    @classmethod
    def of(cls, weight: Tensor) -> BlockSums:
        blocks = -(-weight.numel() // BLOCK)
        padded = np.zeros(blocks * BLOCK)
        padded[: weight.numel()] = weight.double().numpy()
        inner = np.cumsum(padded.reshape(blocks, BLOCK), axis=1)
        return cls(torch.from_numpy(inner), torch.from_numpy(np.cumsum(inner[:, -1])))

    def before(self, count: Tensor) -> Tensor:
        block = ((count - 1) // BLOCK).clamp(min=0)
        inner = self.inner.view(-1)[(count - 1).clamp(min=0)]
        return torch.where(count > 0, self._outer_before(block) + inner, 0.0)

    def find(self, level: Tensor, count: Tensor) -> Tensor:
        """Returns the first positions at which the sum exceeds ``level``, never of weight zero."""
        block = torch.searchsorted(self.outer, level, right=True)
        end = torch.minimum(count - block * BLOCK, torch.tensor(BLOCK))
        rest = level - self._outer_before(block)
        top = self.inner.view(-1)[block * BLOCK + end - 1]
        # Subtracting may round up to the whole sum, which no position exceeds: then the last
        # position of positive weight is taken, where the sum first reaches the whole.
        inside = rest < top
        target = torch.where(inside, rest, top)
        return block * BLOCK + self._search(block, target, inside)

    def _outer_before(self, block: Tensor) -> Tensor:
        return torch.where(block > 0, self.outer[(block - 1).clamp(min=0)], 0.0)

    def _search(self, block: Tensor, target: Tensor, exceed: Tensor) -> Tensor:
        """Returns each block's first place where the sum exceeds ``target``, or reaches it."""
        sums, found = self.inner.view(-1), torch.zeros_like(block)
        for step in reversed(range(_STEPS)):
            value = sums[block * BLOCK + found + (1 << step) - 1]
            found += ((value < target) | (exceed & (value == target))).long() << step
        return found


@dataclass(frozen=True, eq=False)
class NodePool:
    """The nodes of one type in order of the time from which they may be drawn. A draw returns
    positions in this order."""

    num_nodes: int
    moment: Tensor | None = None  # [m] int64, ascending times; None: all nodes are always allowed
    # [m] int64, how many nodes are allowed from each moment on; None: 1, 2, ..., as each moment is
    # the time of one node.
    reached: Tensor | None = None
    # [N] int64, the node at each position; None: its id, or the nodes are spread over ranks.
    order: Tensor | None = None
    weight: Tensor | None = None  # [N] float64, the weight at each position; None: all have the same

    @classmethod
    def of(cls, num_nodes: int, time: Tensor | None = None, weight: Tensor | None = None) -> NodePool:
        """Returns the pool of nodes 0, 1, ... in order of (time, id). ``time``: [N] int64, from
        when a node may be drawn; None: always. ``weight``: [N] floating-point, or None."""
        weight = None if weight is None else weight.double()
        if time is None:
            return cls(num_nodes, weight=weight)
        moment, order = time.sort(stable=True)
        return cls(num_nodes, moment, None, order, None if weight is None else weight[order])

    @cached_property
    def sums(self) -> BlockSums | None:
        return None if self.weight is None else BlockSums.of(self.weight)

    @cached_property
    def earliest(self) -> int:
        """The number of nodes up to the first one with a weight above 0; 0 if there is none."""
        if self.weight is None:
            return min(self.num_nodes, 1)
        positive = self.weight > 0
        return int(positive.to(torch.uint8).argmax()) + 1 if bool(positive.any()) else 0

    def allowed(self, time: Tensor | None, count: int) -> Tensor:
        """Returns [count] int64, for each draw the number of nodes that exist at its time: the
        first ones of the order. It is 0 if all of these have weight zero. ``time``: [count] int64,
        or None."""
        if self.moment is None or time is None:
            found = torch.full((count,), self.num_nodes)
        else:
            found = torch.searchsorted(self.moment, time, right=True)
            if self.reached is not None:
                found = torch.cat([torch.zeros(1, dtype=torch.int64), self.reached])[found]
        return found if self.sums is None else found * (self.sums.before(found) > 0)

    def draw(self, streams: WordStreams, which: Tensor, allowed: Tensor) -> Tensor:
        """Returns one position for each of some streams. ``which``: [w] int64, the numbers of the
        streams. ``allowed``: [w] int64, at least 1, as `allowed` returns it."""
        if self.sums is None:
            return streams.bounded(allowed, which)
        return self.sums.find(streams.uniform(which) * self.sums.before(allowed), allowed)

    def node(self, position: Tensor) -> Tensor:
        return position if self.order is None else self.order[position]

    def position(self, node: Tensor) -> Tensor:
        return node if self._positions is None else self._positions[node]

    def draw_outside(self, streams: WordStreams, which: int, allowed: int, taken: Tensor) -> int | None:
        """Returns a position outside ``taken`` [n] int64, which is distinct and ascends, or
        None."""
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
        """Draws by weight in one pass over the allowed nodes, the taken ones left out."""
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


@dataclass(frozen=True, eq=False)
class ExistingPairs:
    """The distinct node pairs (held, other) that an edge joins, sorted. Nodes that may be drawn
    stand as positions in their pool, the sources of triplets as ids."""

    code: Tensor  # [n] int64, ``held * num_others + other`` of each pair, ascending
    num_others: int  # the number of nodes that the other end may be
    # [k] int64, the held ends whose pairs are all here, ascending; None: all.
    known: Tensor | None = None

    @classmethod
    def by_target(cls, edges: InEdges, sources: NodePool, targets: NodePool) -> ExistingPairs:
        """Returns the pairs (target, source) of a relation, both as positions."""
        held, other = targets.position(edges.targets()), sources.position(edges.indices.long())
        return cls.of(held, other, targets.num_nodes, sources.num_nodes)

    @classmethod
    def by_source(cls, edges: InEdges, sources: NodePool, targets: NodePool) -> ExistingPairs:
        """Returns the pairs (source, target) of a relation: ids of sources, positions of
        targets."""
        held, other = edges.indices.long(), targets.position(edges.targets())
        return cls.of(held, other, sources.num_nodes, targets.num_nodes)

    @classmethod
    def of(cls, held: Tensor, other: Tensor, num_held: int, num_others: int) -> ExistingPairs:
        if num_held * num_others >= 2**63:
            raise ValueError(
                f"negatives that avoid existing edges number the pairs of {num_held} and {num_others} "
                f"nodes, which takes more than 63 bits; leave exclude_existing out"
            )
        return cls(torch.unique_consecutive((held * num_others + other).sort().values), num_others)

    def contain(self, held: Tensor, other: Tensor) -> Tensor:
        if not self.code.numel():
            return torch.zeros_like(held, dtype=torch.bool)
        code = held * self.num_others + other
        at = torch.searchsorted(self.code, code).clamp(max=self.code.numel() - 1)
        return self.code[at] == code

    def others(self, held: int) -> Tensor:
        first = held * self.num_others
        begin, end = torch.searchsorted(self.code, torch.tensor([first, first + self.num_others])).tolist()
        return self.code[begin:end] - first

    def known_from(self, held: int, limit: int) -> Iterator[int]:
        """Yields the known held nodes below ``limit`` in a circle that begins at ``held``."""
        if self.known is None:
            yield from ((held + step) % limit for step in range(limit))
            return
        below = self.known[: int(torch.searchsorted(self.known, limit))]
        begin = int(torch.searchsorted(below, held))
        yield from torch.cat([below[begin:], below[:begin]]).tolist()
