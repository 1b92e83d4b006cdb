"""A graph by destination."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops import InEdges, OwnedEdges


@dataclass(frozen=True, eq=False)
class CscGraph:
    """A graph by destination: the in-edges of every node.

    Each node's in-edges are in ascending input edge id, the canonical order of the sampling contract. Build a
    graph with `from_edge_index` or `from_csc`, which check the arrays; the constructor trusts its argument.

    Attributes:
        in_edges: of all nodes; row i is node i. Edge ids that are None are the positions of the edges.
    """

    in_edges: InEdges

    @property
    def indptr(self) -> Tensor:
        """[num_nodes + 1] int64, where the in-edges of each node begin."""
        return self.in_edges.indptr

    @property
    def indices(self) -> Tensor:
        """[num_edges] int32 or int64, the source of each edge."""
        return self.in_edges.indices

    @property
    def edge_ids(self) -> Tensor | None:
        """[num_edges] int32 or int64, the input edge that each edge was; None where position and id are the
        same."""
        return self.in_edges.edge_ids

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return self.in_edges.num_targets

    @property
    def num_edges(self) -> int:
        """The number of edges."""
        return self.in_edges.num_edges

    @property
    def owned_edges(self) -> OwnedEdges:
        """The same edges, all of them owned by this process."""
        nodes = self.num_nodes
        return OwnedEdges(self.in_edges, torch.arange(nodes), 0, nodes, self.num_edges)

    @classmethod
    def from_edge_index(cls, edge_index: Tensor, num_nodes: int) -> CscGraph:
        """Sorts an edge list by destination; 4 bytes an index where the graph has fewer than 2**31 nodes.

        Args:
            edge_index: [2, E] int32 or int64, sources above destinations, in any order.
            num_nodes: number of nodes, more than any id.

        Raises:
            IndexError: an id is negative or not below ``num_nodes``.
        """
        return cls(InEdges(*ops.build_csc(edge_index, num_nodes)))

    @classmethod
    def from_csc(cls, indptr: Tensor, indices: Tensor, edge_ids: Tensor | None = None) -> CscGraph:
        """Wraps arrays that are by destination already, without copying them.

        Args:
            indptr: [N + 1] int64, from 0 to E, ascending.
            indices: [E] int32 or int64, in [0, N).
            edge_ids: [E] int32 or int64, in [0, E), or None. Where an adjacency list is not in ascending
                edge id the sample is
                still uniform, but it differs from that of the same graph given as an edge list.

        Raises:
            ValueError, IndexError: the arrays do not fit together; the message says which entry.
        """
        return cls(InEdges.checked(indptr, indices, edge_ids))

    def advise_huge_pages(self) -> CscGraph:
        """Asks for huge pages under the arrays that sampling reads at random; returns the graph itself."""
        for array in (self.indptr, self.indices, self.edge_ids):
            if array is not None:
                ops.advise_huge_pages(array)
        return self
