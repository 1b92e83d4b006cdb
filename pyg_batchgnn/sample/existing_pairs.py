"""The pairs of nodes that edges of a relation join."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.ops import InEdges


@dataclass(frozen=True, eq=False)
class ExistingPairs:
    """The distinct pairs (held, other) that are ends of an edge, sorted.

    Attributes:
        code: [n] int64, ``held * num_others + other`` of each pair, ascending.
        num_others: the number of nodes that the other end may be.
    """

    code: Tensor
    num_others: int

    @classmethod
    def by_target(cls, edges: InEdges, num_sources: int) -> ExistingPairs:
        """Returns the pairs (target, source) of a relation."""
        return cls._of(edges.targets(), edges.indices.long(), edges.num_targets, num_sources)

    @classmethod
    def by_source(cls, edges: InEdges, num_sources: int) -> ExistingPairs:
        """Returns the pairs (source, target) of a relation."""
        return cls._of(edges.indices.long(), edges.targets(), num_sources, edges.num_targets)

    @classmethod
    def _of(cls, held: Tensor, other: Tensor, num_held: int, num_others: int) -> ExistingPairs:
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
