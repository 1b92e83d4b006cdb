"""Pieces of the nodes that a process owns, so small that the rows of their sources fit memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import MessageKind
from pyg_batchgnn.ops import OwnedEdges


@dataclass(frozen=True)
class PieceLimits:
    """The memory that a piece may take.

    Attributes:
        budget: bytes of a piece, about; the in-edges of one node are never divided.
        source: bytes that a distinct source takes.
        edge: bytes that an edge takes, at most.
        rows: a piece has at most this many nodes; None for any number.
    """

    budget: int
    source: int
    edge: int = 48
    rows: int | None = None

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

    def with_results(self, row_bytes: int) -> PieceLimits:
        """Gives half of the budget to the results, of which each node has ``row_bytes``."""
        if row_bytes == 0:
            return self
        half = max(1, self.budget // 2)
        return replace(self, budget=half, rows=max(1, half // row_bytes))

    def bytes(self, sources: int, edges: int) -> int:
        """Returns the bytes of a piece."""
        return sources * self.source + edges * self.edge

    def edges(self, num_nodes: int) -> int:
        """Returns a number of edges that fit for certain in a graph of ``num_nodes`` nodes.

        They fit where every edge has a source of its own, or where all nodes are among the sources.
        """
        of_all = (self.budget - num_nodes * self.source) // self.edge
        return max(1, self.budget // (self.source + self.edge), of_all)


#: Rows of the nodes of each rank whose memory this one can read, by rank.
ReadableRows: TypeAlias = Mapping[int, Tensor]


class SourceNumbers(Enum):
    """The numbers by which a piece's edges name their sources."""

    TABLE_ROWS = "table rows"  #: rows of the piece's tables
    TARGETS_FIRST = "targets first"  #: the piece's nodes, then the other sources


@dataclass(frozen=True, eq=False)
class SourceColumns:
    """The columns that a pass over all nodes reads of the sources of their in-edges.

    Attributes:
        tables: the columns by name.
        numbers: the numbers that sources have.
        result_bytes: bytes that the pass takes for each node beside the rows of sources.
        kind: the kind under which exchanges are counted.
    """

    tables: Mapping[str, ReadableRows] = field(default_factory=dict)
    numbers: SourceNumbers = SourceNumbers.TABLE_ROWS
    result_bytes: int = 0
    kind: MessageKind = MessageKind.FEATURES


@dataclass(frozen=True, eq=False)
class Piece:
    """Some owned nodes, and the rows of their in-edges' sources.

    Attributes:
        rows: the owned nodes.
        indices: [e] int32 or int64, the number of each in-edge's source; see `SourceNumbers`.
        node: [u] int32 or int64, original ids by table row; None where each row's number is its
            original id.
        tables: by name, the columns, one row per table row.
        order: [s] the table row of each number; None where numbers are table rows.
        ids: [s] int64, the id of each number in the numbering of `OwnedEdges`; None where each
            number is the id itself.
    """

    rows: range
    indices: Tensor
    node: Tensor | None
    tables: Mapping[str, Tensor]
    order: Tensor | None = None
    ids: Tensor | None = None

    @property
    def original(self) -> Tensor:
        """[e] int64, the original id of each in-edge's source, of numbers that are table rows."""
        if self.node is None:
            return self.indices.to(torch.int64)
        return ops.gather_rows(self.node.to(torch.int64), self.indices)


@dataclass(frozen=True, eq=False)
class Renumbered:
    """The sources of some in-edges with the targets first.

    Attributes:
        ids: [u] int64, the targets and the sources, each once, ascending.
        indices: [e] int64, the number of each edge's source.
        order: [u] int64, the position in ``ids`` of each number.
    """

    ids: Tensor
    indices: Tensor
    order: Tensor

    @classmethod
    def of(cls, sources: Tensor, targets: range, num_nodes: int) -> Renumbered:
        """Numbers the sources.

        Args:
            sources: [e] ids of the sources.
            targets: the ids of the targets.
            num_nodes: of the graph.
        """
        own = torch.arange(targets.start, targets.stop)
        ids, (place, at) = ops.unique_nodes([sources.to(torch.int64), own], num_nodes)
        begin, count = (int(at[0]) if len(targets) else 0), len(targets)
        order = torch.cat([at, torch.arange(begin), torch.arange(begin + count, ids.numel())])
        number = torch.empty_like(order)
        number[order] = torch.arange(order.numel())
        return cls(ids, ops.gather_rows(number, place), order)


def cut_pieces(own: OwnedEdges, limits: PieceLimits) -> Iterator[range]:
    """Cuts the owned nodes into pieces within the limits.

    Where all nodes of the graph fit, edges alone count. Else a piece begins with as many edges as
    fit for certain, and the next one has more or fewer edges as the distinct sources allow.
    """
    begin, nodes = 0, own.node.numel()
    edges = limits.edges(own.num_nodes)
    all_fit = limits.bytes(own.num_nodes, edges) <= limits.budget
    while begin < nodes:
        most = nodes if limits.rows is None else begin + limits.rows
        rows = range(begin, min(most, _end(own, begin, edges)))
        taken = 0 if all_fit else limits.bytes(_distinct(own, rows), len(own.in_edges.edges(rows)))
        if taken > limits.budget and len(rows) > 1 and edges > 1:
            edges = max(1, edges * limits.budget * 3 // (taken * 4))
            continue
        yield rows
        begin = rows.stop
        if taken:  # more edges have more sources in common, so this number fits with some room
            edges = max(edges, edges * limits.budget // taken)


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
