"""The order of in-edges by time, which lies beside the canonical one (design, section 8)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops import InEdges


@dataclass(frozen=True, eq=False)
class TimeOrder:
    """The in-edges of every target by time.

    Edges of equal time are in canonical order, which is by input edge id. What a seed's time allows
    is then a range of each adjacency list.

    Attributes:
        position: [E] int32 or int64, by place in this order the position of the edge in its CSC.
            The edges of a target have the same places as in the CSC.
        time: [E] int64, the time of the edge at each place.
    """

    position: Tensor
    time: Tensor

    @classmethod
    def of(cls, edges: InEdges, time: Tensor) -> TimeOrder:
        """Sorts the in-edges of every target by time.

        Args:
            edges: the in-edges of the targets.
            time: [E] int64, the time of each edge, by position in ``edges``.
        """
        ascending = torch.argsort(time, stable=True)
        place = _by_target(edges, ascending)
        position = ascending if place is None else ascending[place.long()]
        return cls(position.to(ops.id_dtype(edges.num_edges)), time[position])

    @property
    def nbytes(self) -> int:
        """The bytes of both arrays."""
        return self.position.nbytes + self.time.nbytes


def _by_target(edges: InEdges, ascending: Tensor) -> Tensor | None:
    """Sorts positions in time order by target, stable and by counting; None if they are so."""
    target = edges.targets()[ascending]
    return ops.build_csc(torch.stack([target, target]), edges.num_targets).edge_ids


def first_unsorted(edges: InEdges, time: Tensor) -> int | None:
    """Returns the first position whose edge is older than the one before it in the same list.

    ``time``: [E] int64, by position in ``edges``. The result is None if every list ascends.
    """
    if time.numel() < 2:
        return None
    falls = time[1:] < time[:-1]
    starts = edges.indptr[1:-1]
    starts = starts[(starts > 0) & (starts < time.numel())]
    falls[starts - 1] = False  # between two lists
    found = falls.nonzero()
    return int(found[0]) + 1 if found.numel() else None
