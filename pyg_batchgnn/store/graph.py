"""A graph by destination."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops

#: Node ids below this fit 32 bits, which is as many as the sampler then uses for them.
_NARROW = 1 << 31


@dataclass(frozen=True, eq=False)
class CscGraph:
    """In-neighbours of every node, in ascending input edge id: the canonical order of the sampling contract.

    Attributes:
        indptr: [num_nodes + 1] int64, where each destination's in-edges begin.
        indices: [num_edges] int32 or int64, their sources.
        edge_ids: [num_edges] int32 or int64, the input edge each came from; None where position and id are
            the same.

    Build one with `from_edge_index` or `from_csc`, which check the arrays; the constructor trusts its
    arguments.
    """

    indptr: Tensor
    indices: Tensor
    edge_ids: Tensor | None = None

    @property
    def num_nodes(self) -> int:
        return self.indptr.numel() - 1

    @property
    def num_edges(self) -> int:
        return self.indices.numel()

    @classmethod
    def from_edge_index(cls, edge_index: Tensor, num_nodes: int) -> CscGraph:
        """Sorts an edge list by destination; 4 bytes an index where the graph has fewer than 2**31 nodes.

        Args:
            edge_index: [2, E] int32 or int64, sources above destinations, in any order.
            num_nodes: number of nodes, more than any id.

        Raises:
            IndexError: an id is negative or not below ``num_nodes``.
        """
        indptr, indices, edge_ids = ops.build_csc(edge_index, num_nodes)
        return cls(indptr, indices, edge_ids)

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
        ops.check_vector("indptr", indptr, (torch.int64,))
        ops.check_vector("indices", indices)
        edges = indices.numel()
        if indptr.numel() == 0 or int(indptr[0]) != 0 or int(indptr[-1]) != edges:
            ends = f"{int(indptr[0])} to {int(indptr[-1])}" if indptr.numel() else "nowhere"
            raise ValueError(
                f"indptr must go from 0 to the number of indices ({edges}), but goes from {ends}"
            )
        if indices.dtype == torch.int32 and indptr.numel() - 1 > _NARROW:
            raise TypeError(
                f"int32 indices cannot name all {indptr.numel() - 1} nodes; "
                f"convert them with .to(torch.int64)"
            )
        if not ops.is_ascending(indptr):
            at = int((indptr[1:] < indptr[:-1]).nonzero()[0])
            raise ValueError(
                f"indptr must ascend, but entry {at + 1} ({int(indptr[at + 1])}) is below {int(indptr[at])}"
            )
        ops.check_range("indices", indices, indptr.numel() - 1)
        if edge_ids is not None:
            ops.check_vector("edge_ids", edge_ids)
            if edge_ids.numel() != edges:
                raise ValueError(f"edge_ids has {edge_ids.numel()} entries for {edges} edges")
            ops.check_range("edge_ids", edge_ids, edges, "edge ids")
        return cls(indptr, indices, edge_ids)

    def advise_huge_pages(self) -> CscGraph:
        """Asks for huge pages under the arrays that sampling reads at random; returns the graph itself."""
        for array in (self.indptr, self.indices, self.edge_ids):
            if array is not None:
                ops.advise_huge_pages(array)
        return self
