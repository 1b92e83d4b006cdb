"""Finding the rows of nodes and of edges in the tables of a shard."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.store.row_request import RowRequest


class RowIndex(Protocol):
    """Finds rows of one group in a shard."""

    #: The numbers that a request has for each row.
    id_columns: ClassVar[int]

    def find(self, request: RowRequest) -> Tensor:
        """Returns the positions, [n], of rows in the group's tables.

        Args:
            request: of rows of this shard, its ``node`` counted from the part's first node.
        """

    @property
    def arrays(self) -> dict[str, Tensor]:
        """The arrays of the index, by the names of the constructor's arguments."""


@dataclass(frozen=True)
class NodeIndex:
    """Finds the rows of nodes, which lie in the order of the part's nodes."""

    id_columns: ClassVar[int] = 1

    def find(self, request: RowRequest) -> Tensor:
        return request.node

    @property
    def arrays(self) -> dict[str, Tensor]:
        return {}


@dataclass(frozen=True, eq=False)
class EdgeIndex:
    """Finds the rows of edges, which lie in the order of the in-edges of the part's nodes.

    Attributes:
        indptr: [n + 1] int64, where each node's in-edges begin; empty where edges have no
            attributes.
        edge_ids: [e] input ids of the edges, ascending for each node; empty where edges have no
            attributes.
    """

    indptr: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    edge_ids: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))

    id_columns: ClassVar[int] = 2

    @classmethod
    def of(cls, in_edges: InEdges) -> EdgeIndex:
        """Makes the index of some nodes' in-edges, which must be ascending by edge id."""
        return cls(in_edges.indptr, in_edges.explicit_edge_ids())

    def find(self, request: RowRequest) -> Tensor:
        """Finds edges by bisection among the in-edges of their destinations.

        Raises:
            IndexError: an edge is not among the in-edges of its destination.
        """
        assert request.edge is not None
        row, edge = request.node.long(), request.edge.long()
        low, high = self.indptr[row], self.indptr[row + 1]
        end, last = high, max(self.edge_ids.numel() - 1, 0)
        most = int((high - low).max()) if row.numel() else 0
        for _ in range(most.bit_length()):
            middle = (low + high) // 2
            below = (low < high) & (self.edge_ids[middle.clamp(max=last)] < edge)
            low, high = torch.where(below, middle + 1, low), torch.where(below, high, middle)
        if not bool((low < end).all()) or not torch.equal(self.edge_ids[low].to(edge.dtype), edge):
            raise IndexError(
                "an edge was asked for that is not among the in-edges of its destination; give all ranks "
                "parts of the same graph"
            )
        return low

    @property
    def arrays(self) -> dict[str, Tensor]:
        return {"indptr": self.indptr, "edge_ids": self.edge_ids}
