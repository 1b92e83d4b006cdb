"""Pieces of the nodes that a process owns, so small that the rows of their sources fit memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import psutil
import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops import OwnedEdges


@dataclass(frozen=True)
class PieceLimits:
    """The memory that a piece may take.

    Attributes:
        budget: bytes of a piece, about; the in-edges of one node are never divided.
        source: bytes that a distinct source takes.
        edge: bytes that an edge takes, at most.
    """

    budget: int
    source: int
    edge: int = 48

    @classmethod
    def in_place(cls, budget: int) -> PieceLimits:
        """Makes the limits of pieces whose rows are read where they lie."""
        return cls(budget, 0)

    @classmethod
    def fetched(cls, budget: int, row_bytes: int, ranks: int) -> PieceLimits:
        """Makes the limits of pieces whose rows are fetched.

        Rows lie in a block. Those of other ranks lie also in the message that brought them. About
        as many lie in the message that this rank sends to others.
        """
        return cls(budget, row_bytes + 2 * row_bytes * (ranks - 1) // ranks)

    def bytes(self, sources: int, edges: int) -> int:
        """Returns the bytes of a piece."""
        return sources * self.source + edges * self.edge

    def edges(self, num_nodes: int) -> int:
        """Returns a number of edges that fit for certain in a graph of ``num_nodes`` nodes.

        They fit where every edge has a source of its own, or where all nodes are among the sources.
        """
        of_all = (self.budget - num_nodes * self.source) // self.edge
        return max(1, self.budget // (self.source + self.edge), of_all)


@dataclass(frozen=True)
class SourceColumns:
    """The columns that building needs of the sources of edges, beside their original ids.

    Attributes:
        features: True if the features are needed.
        scale: [n] a number for each node that this process owns; None where none is needed.
    """

    features: bool = False
    scale: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Piece:
    """Some owned nodes, and the rows of their in-edges' sources.

    Attributes:
        rows: the owned nodes.
        indices: [e] int32 or int64, the row of each in-edge's source in the tables below.
        node: [u] int32 or int64, original ids; None where each row's number is its original id.
        features: [u, F], where they are needed.
        scale: [u], where it is needed.
    """

    rows: range
    indices: Tensor
    node: Tensor | None
    features: Tensor | None
    scale: Tensor | None

    @property
    def original(self) -> Tensor:
        """[e] int64, the original id of each in-edge's source."""
        if self.node is None:
            return self.indices.to(torch.int64)
        return ops.gather_rows(self.node.to(torch.int64), self.indices)


def cut_pieces(own: OwnedEdges, limits: PieceLimits) -> Iterator[range]:
    """Cuts the owned nodes into pieces within the limits.

    Where all nodes of the graph fit, edges alone count. Else a piece begins with as many edges as
    fit for certain, and the next one has more or fewer edges as the distinct sources allow.
    """
    begin, nodes = 0, own.node.numel()
    edges = limits.edges(own.num_nodes)
    all_fit = limits.bytes(own.num_nodes, edges) <= limits.budget
    while begin < nodes:
        rows = range(begin, _end(own, begin, edges))
        taken = 0 if all_fit else limits.bytes(_distinct(own, rows), len(own.in_edges.edges(rows)))
        if taken > limits.budget and len(rows) > 1 and edges > 1:
            edges = max(1, edges * limits.budget * 3 // (taken * 4))
            continue
        yield rows
        begin = rows.stop
        if taken:  # more edges have more sources in common, so this number fits with some room
            edges = max(edges, edges * limits.budget // taken)


def free_bytes() -> int:
    """Returns the bytes of the host's memory that building may take: an eighth of what is free."""
    return int(psutil.virtual_memory().available // 8)


def _distinct(own: OwnedEdges, rows: range) -> int:
    """Counts the distinct sources of some nodes' in-edges."""
    return ops.count_unique_nodes([own.in_edges.sources(rows).to(torch.int64)], own.num_nodes)


def _end(own: OwnedEdges, begin: int, edges: int) -> int:
    """Returns the end of a range of rows from ``begin`` on with at most ``edges`` in-edges.

    The range has one row at least.
    """
    indptr = own.in_edges.indptr
    last = int(indptr[begin]) + edges
    end = int(torch.searchsorted(indptr, torch.tensor(last), right=True)) - 1
    return min(max(end, begin + 1), own.node.numel())
