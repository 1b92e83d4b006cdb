"""The sums of edge weights along adjacency lists, from which neighbours are drawn."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.ops import InEdges


@dataclass(frozen=True, eq=False)
class WeightSums:
    """The prefix sums of the weights of every target's in-edges.

    They are added in order and start anew at every list. So their bits depend on the list alone,
    and not on the part of the graph that holds it.

    Attributes:
        sums: [E] float64, the sum of the weights of a list up to and including each place. Places
            are positions in the CSC, or in the time order if there is one.
    """

    sums: Tensor

    @classmethod
    def of(cls, edges: InEdges, weight: Tensor) -> WeightSums:
        """Sums weights.

        Args:
            edges: the in-edges of the targets.
            weight: [E] weights by place, finite and not negative.
        """
        out = weight.to(torch.float64, copy=True)
        degree = edges.degrees
        order = torch.argsort(degree, stable=True)
        lengths, counts = torch.unique_consecutive(degree[order], return_counts=True)
        # Lists of one length are rows of one matrix, so that each list is summed from its start.
        for length, rows in zip(lengths.tolist(), order.split(counts.tolist()), strict=True):
            if length > 1:
                places = edges.indptr[rows][:, None] + torch.arange(length)
                out[places] = out[places].cumsum(1)
        return cls(out)

    @property
    def nbytes(self) -> int:
        """The bytes of the sums."""
        return self.sums.nbytes
