"""The pairs of nodes that edges of a relation join."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.sample.node_pool import NodePool


@dataclass(frozen=True, eq=False)
class ExistingPairs:
    """The distinct pairs (held, other) that are ends of an edge, sorted.

    Ends that negatives are drawn for are positions in their pools. The sources of triplets, which
    are not drawn, are ids.

    Attributes:
        code: [n] int64, ``held * num_others + other`` of each pair, ascending.
        num_others: the number of nodes that the other end may be.
        known: [k] int64, the held ends whose pairs are all here, ascending; None: all.
    """

    code: Tensor
    num_others: int
    known: Tensor | None = None

    @classmethod
    def by_target(cls, edges: InEdges, sources: NodePool, targets: NodePool) -> ExistingPairs:
        """Returns the pairs (target, source) of a relation, both by position."""
        held, other = targets.position(edges.targets()), sources.position(edges.indices.long())
        return cls.of(held, other, targets.num_nodes, sources.num_nodes)

    @classmethod
    def by_source(cls, edges: InEdges, sources: NodePool, targets: NodePool) -> ExistingPairs:
        """Returns the pairs (source, target) of a relation, sources by id, targets by position."""
        held, other = edges.indices.long(), targets.position(edges.targets())
        return cls.of(held, other, sources.num_nodes, targets.num_nodes)

    @classmethod
    def of(cls, held: Tensor, other: Tensor, num_held: int, num_others: int) -> ExistingPairs:
        """Returns the distinct ones of [n] pairs.

        Raises:
            ValueError: there may be too many pairs to number them.
        """
        if num_held * num_others >= 2**63:
            raise ValueError(
                f"negatives that avoid existing edges number the pairs of {num_held} and {num_others} "
                f"nodes, which takes more than 63 bits; leave exclude_existing out"
            )
        return cls(torch.unique_consecutive((held * num_others + other).sort().values), num_others)

    def contain(self, held: Tensor, other: Tensor) -> Tensor:
        """Returns for each of [n] pairs whether an edge joins it, [n] bool."""
        if not self.code.numel():
            return torch.zeros_like(held, dtype=torch.bool)
        code = held * self.num_others + other
        at = torch.searchsorted(self.code, code).clamp(max=self.code.numel() - 1)
        return self.code[at] == code

    def others(self, held: int) -> Tensor:
        """Returns the distinct other ends of a node's edges, [n] int64 in ascending order."""
        first = held * self.num_others
        begin, end = torch.searchsorted(self.code, torch.tensor([first, first + self.num_others])).tolist()
        return self.code[begin:end] - first

    def known_from(self, held: int, limit: int) -> Iterator[int]:
        """Returns the known held ends below a limit, from one of them on, after the last the
        first."""
        if self.known is None:
            yield from ((held + step) % limit for step in range(limit))
            return
        below = self.known[: int(torch.searchsorted(self.known, limit))]
        begin = int(torch.searchsorted(below, held))
        yield from torch.cat([below[begin:], below[:begin]]).tolist()
