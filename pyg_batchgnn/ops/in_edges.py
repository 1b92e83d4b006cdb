"""The in-edges of some nodes: the one form in which every room holds edges by destination."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.ops.checks import check_ids, check_indptr, check_vector, fits_int32, remember


@dataclass(frozen=True, eq=False, repr=False)
class InEdges:
    """The in-edges of some nodes, the targets, in compressed sparse columns (CSC). The constructor
    takes any arrays; `checked` checks them, as does every operator before it reads them.

    Attributes:
        indptr: [n + 1] int64, where each target's in-edges begin; from 0 to e, ascending.
        indices: [e] int32 or int64, the ids of the sources.
        edge_ids: [e] int32 or int64, the id of each edge; None where its position is its id.
    """

    indptr: Tensor
    indices: Tensor
    edge_ids: Tensor | None = None

    @classmethod
    def checked(
        cls,
        indptr: Tensor,
        indices: Tensor,
        edge_ids: Tensor | None = None,
        *,
        num_sources: int | None = None,
    ) -> InEdges:
        """Wraps contiguous arrays on the CPU that fit together.

        Args:
            num_sources: sources are in [0, num_sources); None: as many as there are targets.

        Raises:
            TypeError, ValueError, IndexError: they do not; the message names the entry.
        """
        found = cls(indptr, indices, edge_ids)
        found.check(num_sources=num_sources)
        return found

    def check(self, *, num_sources: int | None = None) -> None:
        """Raises what `checked` raises; free until torch writes to arrays that were checked."""
        indptr, indices, edge_ids = self.indptr, self.indices, self.edge_ids
        check_vector("indptr", indptr, (torch.int64,))
        check_vector("indices", indices)
        edges, targets = indices.numel(), indptr.numel() - 1
        sources = targets if num_sources is None else num_sources
        if indices.dtype == torch.int32 and not fits_int32(sources):
            raise TypeError(
                f"int32 indices cannot name all {sources} nodes; convert them with .to(torch.int64)"
            )
        check_indptr("indptr", indptr, edges, of_graph=True)
        check_ids("indices", indices, sources, of_graph=True)
        if edge_ids is not None:
            check_vector("edge_ids", edge_ids)
            if edge_ids.numel() != edges:
                raise ValueError(f"edge_ids has {edge_ids.numel()} entries for {edges} edges")
            check_ids("edge_ids", edge_ids, edges, "edge ids", of_graph=True)

    def note_checked(self, num_sources: int, *, of_graph: bool = True) -> None:
        """Notes that the entries were checked elsewhere: for `check`, and for operators too if the
        arrays are the sampler's own, not ``of_graph``."""
        remember(self.indptr, self.indices.numel() + 1, ascends=True, of_graph=of_graph)
        remember(self.indices, num_sources, of_graph=of_graph)
        if self.edge_ids is not None:
            remember(self.edge_ids, self.indices.numel(), of_graph=of_graph)

    @property
    def num_targets(self) -> int:
        return self.indptr.numel() - 1

    @property
    def num_edges(self) -> int:
        return self.indices.numel()

    @property
    def degrees(self) -> Tensor:
        """[n] int64, the number of in-edges of each target."""
        return self.indptr.diff()

    def edges(self, rows: range) -> range:
        """Returns the positions of the in-edges of a range of targets."""
        return range(int(self.indptr[rows.start]), int(self.indptr[rows.stop]))

    def sources(self, rows: range) -> Tensor:
        """Returns the sources of the in-edges of a range of targets, a view of ``indices``."""
        edges = self.edges(rows)
        return self.indices[edges.start : edges.stop]

    def targets(self, rows: range | None = None) -> Tensor:
        """Returns the target of each in-edge of a range of targets, or of all, [e] int64."""
        rows = range(self.num_targets) if rows is None else rows
        degrees = self.indptr[rows.start : rows.stop + 1].diff()
        return torch.repeat_interleave(torch.arange(rows.start, rows.stop), degrees)

    def targets_of(self, edges: range) -> Tensor:
        """Returns the target of each edge of a range of positions, [len(edges)] int64."""
        if not len(edges):
            return torch.empty(0, dtype=torch.int64)
        first = int(torch.searchsorted(self.indptr, edges.start, right=True)) - 1
        last = int(torch.searchsorted(self.indptr, edges.stop))
        ends = self.indptr[first : last + 1].clamp(edges.start, edges.stop)
        return torch.repeat_interleave(torch.arange(first, last), ends.diff())

    def explicit_edge_ids(self) -> Tensor:
        """Returns the id of each edge: ``edge_ids``, or positions, [e] int64, where it is None."""
        return torch.arange(self.num_edges) if self.edge_ids is None else self.edge_ids

    def edge_list(self) -> Tensor:
        """Returns the edges by input edge id, [2, e] int64, sources above targets."""
        index = torch.stack([self.indices.long(), self.targets()])
        if self.edge_ids is None:
            return index
        ordered = torch.empty_like(index)
        ordered[:, self.edge_ids.long()] = index
        return ordered

    def __repr__(self) -> str:
        return f"InEdges({self.num_targets:,} targets, {self.num_edges:,} edges)"


@dataclass(frozen=True, eq=False)
class OwnedEdges:
    """The in-edges of the nodes that a process owns: a rank's part, or a whole graph."""

    # Of the owned nodes; row i is node ``first_node`` + i. Over ranks edge ids are never None.
    in_edges: InEdges
    node: Tensor  # [n] int64, the original id of each owned node
    first_node: int  # the id of the first owned node, in the numbering of the sources
    num_nodes: int
    num_edges: int
