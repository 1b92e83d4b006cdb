"""The sums of edge weights along adjacency lists, from which neighbours are drawn."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops import InEdges


@dataclass(frozen=True, eq=False)
class WeightSums:
    """The prefix sums of the weights of every target's in-edges.

    They are added in order and start anew at every list. So their bits depend on the list alone,
    and not on the part of the graph that holds it.

    Places are positions in the CSC, or in the time order if there is one.

    Attributes:
        sums: [E] float64, the sum of the weights of a list up to and including each place.
        weight: [E] float64, the weight at each place.
        positive: [E + 1] int64, the number of positive weights before each place; empty if all are
            positive.
    """

    sums: Tensor
    weight: Tensor
    positive: Tensor

    @classmethod
    def of(cls, edges: InEdges, weight: Tensor) -> WeightSums:
        """Sums weights.

        Args:
            edges: the in-edges of the targets.
            weight: [E] weights by place, finite and not negative.

        Raises:
            ValueError: the weights of a target are too large to be added up.
        """
        weight = weight.to(torch.float64, copy=True)
        sums = ops.sum_lists(edges.indptr, weight)
        if not bool(torch.isfinite(sums).all()):
            raise ValueError("the weights of a node are too large to be added up; divide all by a constant")
        positive = torch.empty(0, dtype=torch.int64)
        if not bool((weight > 0).all()):
            positive = torch.cat([torch.zeros(1, dtype=torch.int64), (weight > 0).cumsum(0)])
        return cls(sums, weight, positive)

    def advise_huge_pages(self) -> WeightSums:
        """Asks for huge pages under the arrays, as sampling reads at random. Returns the object."""
        for array in self.arrays:
            ops.advise_huge_pages(array)
        return self

    @property
    def arrays(self) -> tuple[Tensor, Tensor, Tensor]:
        """The sums, the weights and the numbers of positive ones, as the kernel takes them."""
        return self.sums, self.weight, self.positive

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays."""
        return sum(array.nbytes for array in self.arrays)
