"""The in-edges whose sources a process aggregates, and where the rows of these sources are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Header, MessageKind
from pyg_batchgnn.ops import OwnedEdges
from pyg_batchgnn.store import NODE_ID, DistFeatureStore, RowReader, Wanted


@dataclass(frozen=True)
class Limits:
    """How much may be worked on at once.

    Attributes:
        budget: bytes of a piece, about; one node's in-edges are never divided.
        source: bytes that a distinct source takes.
        edge: bytes that an edge takes, at most.
    """

    budget: int
    source: int
    edge: int = 48

    @classmethod
    def within(cls, budget: int, row_bytes: int, ranks: int) -> Limits:
        """Of pieces whose rows lie in a block, those of other ranks in the message that brought them too,
        and as many, as others ask for them, in one that is sent."""
        return cls(budget, row_bytes + 2 * row_bytes * (ranks - 1) // ranks)

    def bytes(self, sources: int, edges: int) -> int:
        """What a piece takes."""
        return sources * self.source + edges * self.edge

    def edges(self, num_nodes: int) -> int:
        """How many surely fit, of a graph of so many nodes: where every edge has a source of its own, or
        where all nodes are among them."""
        of_all = (self.budget - num_nodes * self.source) // self.edge
        return max(1, self.budget // (self.source + self.edge), of_all)


@dataclass(frozen=True, eq=False)
class Piece:
    """Some nodes and the rows of their in-edges' sources.

    Attributes:
        rows: of the neighbourhood.
        tables: by name, [u, ...] each.
        indices: [e] for every in-edge, where its source lies in the tables.
    """

    rows: range
    tables: dict[str, Tensor]
    indices: Tensor


class Sources(Protocol):
    """Reads what the sources of edges have."""

    def pieces(self, own: OwnedEdges, limits: Limits) -> Iterator[Piece]:
        """All nodes of a neighbourhood in pieces; over ranks collective, with empty pieces where others
        have more."""


class HeldSources:
    """Rows of all nodes, in one process. Pieces are cut by edges: no row is copied."""

    def __init__(self, tables: dict[str, Tensor]) -> None:
        self._tables = tables

    def pieces(self, own: OwnedEdges, limits: Limits) -> Iterator[Piece]:
        begin, nodes = 0, own.node.numel()
        while begin < nodes:
            rows = range(begin, _end(own, begin, limits.edges(0)))
            yield Piece(rows, self._tables, own.in_edges.sources(rows))
            begin = rows.stop


class RankSources:
    """Rows that are spread over ranks: of a piece, each distinct remote source's is fetched once.

    Args:
        store: where they are.
        names: attributes; ``NODE_ID`` for original ids.
        threads: at most so many threads.
    """

    def __init__(self, store: DistFeatureStore, names: Sequence[str], threads: int | None = None) -> None:
        self._comm, self._reader = store.comm, store.reader(names, (), threads)

    @property
    def row_bytes(self) -> int:
        layout = self._reader.node_layout
        assert layout is not None
        return layout.row_bytes

    def pieces(self, own: OwnedEdges, limits: Limits) -> Iterator[Piece]:
        cuts = list(_cut(own, limits))
        for number in range(self._comm.max(len(cuts))):
            rows = cuts[number] if number < len(cuts) else range(0)
            unique, (place,) = ops.unique_nodes([own.in_edges.sources(rows).to(torch.int64)], own.num_nodes)
            header = Header(MessageKind.FEATURES, macrobatch=number)
            yield Piece(rows, read_rows(self._reader, unique, header), place)


def read_rows(reader: RowReader, node: Tensor, header: Header) -> dict[str, Tensor]:
    """Rows of [n] int64 ascending internal ids; collective."""
    return reader.read(Wanted.nodes(node), header).node


def original_of(piece: Piece) -> Tensor:
    """[e] int64 original ids of the sources of a piece's edges."""
    return ops.gather_rows(piece.tables[NODE_ID].to(torch.int64), piece.indices)


def _cut(own: OwnedEdges, limits: Limits) -> Iterator[range]:
    """Rows of pieces within the limits. Where all nodes fit, edges alone count; else a piece begins with as
    many edges as surely fit, and the next has more or fewer of them as the distinct sources allow."""
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
        if taken:  # more edges have more sources in common, so that this leaves some room
            edges = max(edges, edges * limits.budget // taken)


def _distinct(own: OwnedEdges, rows: range) -> int:
    return ops.count_unique_nodes([own.in_edges.sources(rows).to(torch.int64)], own.num_nodes)


def _end(own: OwnedEdges, begin: int, edges: int) -> int:
    """The row before which so many edges end, at least the next one."""
    last = int(own.in_edges.indptr[begin]) + edges
    end = int(torch.searchsorted(own.in_edges.indptr, torch.tensor(last), right=True)) - 1
    return min(max(end, begin + 1), own.node.numel())
