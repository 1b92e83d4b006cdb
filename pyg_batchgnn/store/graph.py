"""A graph by destination."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.data import HOMOGENEOUS
from pyg_batchgnn.ops import InEdges, OwnedEdges
from pyg_batchgnn.store.typed_graph import TypedGraph


@dataclass(frozen=True, eq=False, repr=False)
class CscGraph:
    """A graph by destination: the in-edges of every node.

    The in-edges of a node are in ascending input edge id, the canonical order of the sampling
    contract. The arrays are checked when the graph is made, and again by samplers if torch has
    written to them since.

    Attributes:
        in_edges: the in-edges of all nodes; row i is node i.
    """

    in_edges: InEdges

    def __post_init__(self) -> None:
        remedy = "use graph_from_pyg(data) for a Data, CscGraph.from_edge_index for an edge list"
        ops.check_type("in_edges", self.in_edges, InEdges, remedy)
        self.in_edges.check()

    def __repr__(self) -> str:
        return f"CscGraph(nodes={self.num_nodes}, edges={self.num_edges})"

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
        """[num_edges] int32 or int64, the input id of each edge; None where it is the position."""
        return self.in_edges.edge_ids

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return self.in_edges.num_targets

    @property
    def num_edges(self) -> int:
        """The number of edges."""
        return self.in_edges.num_edges

    @cached_property
    def typed(self) -> TypedGraph:
        """The same graph as one of one node type and one relation."""
        return TypedGraph(HOMOGENEOUS, (self.num_nodes,), (self.in_edges,))

    @property
    def owned_edges(self) -> OwnedEdges:
        """The same edges, all of them owned by this process."""
        nodes = self.num_nodes
        return OwnedEdges(self.in_edges, torch.arange(nodes), 0, nodes, self.num_edges)

    @classmethod
    def from_edge_index(cls, edge_index: Tensor, num_nodes: int) -> CscGraph:
        """Sorts an edge list by destination. Ids take 4 bytes where they fit, else 8.

        Args:
            edge_index: [2, E] int32 or int64, sources above destinations, in any order.
            num_nodes: the number of nodes; ids are below it.

        Raises:
            IndexError: an id is negative or not below ``num_nodes``.
        """
        return cls(ops.build_csc(edge_index, num_nodes))

    @classmethod
    def from_csc(cls, indptr: Tensor, indices: Tensor, edge_ids: Tensor | None = None) -> CscGraph:
        """Wraps arrays that are by destination already. Nothing is copied.

        Args:
            indptr: [N + 1] int64, from 0 to E, ascending.
            indices: [E] int32 or int64, in [0, N).
            edge_ids: [E] int32 or int64, in [0, E); None: the positions. Samples are uniform in any
                order of a node's in-edges, but they are those of the same edge list only in
                ascending edge id.

        Raises:
            TypeError, ValueError, IndexError: the arrays do not fit together; the message names the
                entry.
        """
        return cls(InEdges.checked(indptr, indices, edge_ids))

    def advise_huge_pages(self) -> CscGraph:
        """Asks for huge pages under the arrays, as sampling reads at random. Returns the graph."""
        for array in (self.indptr, self.indices, self.edge_ids):
            if array is not None:
                ops.advise_huge_pages(array)
        return self
